"""Rules on raw samples: trend, two modes, one-off spikes, in a table with one row a sample (`label`, `sample_s`)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from workflow_scripts.lib.audit.findings import Seen, rule
from workflow_scripts.lib.audit.frames import each, measured, value
from workflow_scripts.lib.audit.wording import percent, seconds

MIN_SERIES = 9
TREND = 0.05
TREND_P = 0.001
MODE_GAP = 0.05
MODE_SHARE = 0.2
MODE_CLEAR = 3.0
ANCHOR_MOVE = 0.10
BUSY_CORES, CROWDED_CORES = 0.25, 0.5  # that others used beyond what was free: suspicious, and enough to bar a row


def _series(table: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    for label, rows in table.dropna(subset=["sample_s"]).groupby("label", sort=False):
        if len(rows) >= MIN_SERIES:
            yield str(label), rows.sample_s.to_numpy(float)


@rule(
    severity="warning",
    meaning="Step times that drift by more than 5 % measure a warming or throttled device.",
    advice="Let the device reach a steady state, read clocks and temperature, shuffle the cells, measure again.",
    applies=("sample_s",),
    TREND=TREND,
    TREND_P=TREND_P,
)
def drift(table: pd.DataFrame) -> Iterator[Seen]:
    for label, samples in _series(table):
        third = len(samples) // 3
        first, last = np.median(samples[:third]), np.median(samples[-third:])
        p = stats.kendalltau(np.arange(len(samples)), samples).pvalue
        if abs(last / first - 1) > TREND and p < TREND_P:
            text = f"median {seconds(first)} in the first third, {seconds(last)} in the last ({percent(last / first)})"
            yield Seen(label, text, {"first_third_s": first, "last_third_s": last, "p": p})


@rule(
    severity="warning",
    meaning="Samples in two separate groups have no one step time.",
    advice="Find the switch (clock states, a background task, two kernels); report both groups, not their mean.",
    applies=("sample_s",),
    MODE_GAP=MODE_GAP,
    MODE_SHARE=MODE_SHARE,
    MODE_CLEAR=MODE_CLEAR,
)
def two_modes(table: pd.DataFrame) -> Iterator[Seen]:
    for label, samples in _series(table):
        ordered = np.sort(samples)
        cut = int(np.argmax(np.diff(ordered))) + 1
        low, high = ordered[:cut], ordered[cut:]
        gap = high[0] - low[-1]
        within = max(low[-1] - low[0], high[-1] - high[0])
        if (
            min(len(low), len(high)) >= MODE_SHARE * len(samples)
            and gap > MODE_GAP * np.median(samples)
            and np.median(high) - np.median(low) > MODE_CLEAR * within / 2
        ):
            text = f"{len(low)} samples near {seconds(np.median(low))}, {len(high)} near {seconds(np.median(high))}"
            yield Seen(
                label,
                text,
                {"low_s": np.median(low), "high_s": np.median(high), "share_high": len(high) / len(samples)},
            )


@rule(
    severity="warning",
    meaning="An anchor that moves by more than 10 % between processes means that the sittings differ.",
    advice="Do not rank cells across this change; measure them again, close together.",
    applies=("anchor_s", "device"),
    ANCHOR_MOVE=ANCHOR_MOVE,
)
def anchor_moved(table: pd.DataFrame) -> Iterator[Seen]:
    for device, rows in table.dropna(subset=["anchor_s"]).groupby("device", sort=False):
        middle = rows.anchor_s.median()
        for row in each(rows):
            if abs(row.anchor_s / middle - 1) > ANCHOR_MOVE:
                text = f"anchor {seconds(row.anchor_s)} against {seconds(middle)} over all cells of {device}"
                yield Seen(
                    row.label, text, {"anchor_s": row.anchor_s, "median_s": middle, "ratio": row.anchor_s / middle}
                )


@rule(
    severity="warning",
    doubts="time",
    meaning="Other processes that take cores make a step slower, and two threads on two cores several times slower.",
    advice="Close other programs and measure these rows again; compare none of them with rows from a quiet machine.",
    applies=("others_cores",),
    BUSY_CORES=BUSY_CORES,
    CROWDED_CORES=CROWDED_CORES,
)
def busy_machine(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "others_cores")):
        spare = value(row, "spare_cores") or 0
        if row.others_cores > spare + BUSY_CORES:
            severity = "error" if row.others_cores > spare + CROWDED_CORES else None
            text = f"other processes used {row.others_cores:.2f} cores meanwhile, and {spare:g} were to spare"
            yield Seen(row.label, text, {"others_cores": row.others_cores, "spare_cores": spare}, severity)
