"""Which way of computing is advised, and from which batch on throughput stops rising, on invented cells."""

import pandas as pd
import pytest

from tests import example_tables
from workflow_scripts.lib.tables import CELL_COLUMNS
from workflow_scripts.lib.ways import Way, enough, fastest_way, measured_batches

OWN = Way(precision="fp32", execution="eager")


def cells(ways, **changes):
    """Cells of two models, each way with its own throughput and an interval of one per cent to either side."""
    rows = []
    for (precision, execution), speeds in ways.items():
        for model, speed in zip(("a", "b"), speeds, strict=True):
            rows.append({
                "device": "cpu", "model": model, "batch_size": 8, "sequence_length": 64, "attention": "auto",
                "mode": "step", "process": 1, "status": "ok", "precision": precision, "execution": execution,
                "n_params": 1000, "throughput_tokens_per_s": speed, "throughput_low_tokens_per_s": 0.99 * speed,
                "throughput_high_tokens_per_s": 1.01 * speed, "record": f"{model}-{precision}-{execution}.json",
                **changes,
            })  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=CELL_COLUMNS)


@pytest.mark.parametrize(
    ("ways", "floor", "fastest"),
    [
        ({("bf16", "eager"): (150, 140)}, None, ("bf16", "eager")),
        ({("bf16", "eager"): (150, 90)}, None, ("fp32", "eager")),  # not in every pair
        ({("bf16", "eager"): (101, 101)}, None, ("fp32", "eager")),  # within noise
        ({("bf16", "eager"): (110, 110)}, 0.15, ("fp32", "eager")),  # below the noise floor
        ({("bf16", "eager"): (150, 140), ("bf16", "compiled"): (200, 180)}, None, ("bf16", "compiled")),
    ],
)
def test_a_way_is_advised_only_if_it_was_measured_faster_beyond_noise(ways, floor, fastest):
    way = fastest_way(cells({("fp32", "eager"): (100, 100), **ways}), "cpu", OWN, floor)
    assert (way.precision, way.execution) == fastest
    assert (way.n_pairs > 0) == (fastest != ("fp32", "eager"))
    assert way.over == (OWN if way.n_pairs else None)


def test_what_was_barred_or_failed_is_not_advised():
    both = pd.concat([cells({("fp32", "eager"): (100, 100)}), cells({("bf16", "eager"): (900, 900)}, status="barred")])
    assert fastest_way(both, "cpu", OWN, None) == OWN


def test_where_training_s_own_way_was_not_measured_the_others_are_compared_with_the_one_measured_most():
    captured = Way(precision="fp32", execution="graphed")
    eager = pd.concat([cells({("fp32", "eager"): (100, 100)}), cells({("fp32", "eager"): (90, 90)}, batch_size=4)])
    both = pd.concat([cells({("bf16", "graphed"): (800, 900)}), eager])
    way = fastest_way(both, "cpu", captured, None)
    assert (way.precision, way.execution, way.n_pairs, way.over) == ("bf16", "graphed", 2, OWN)
    assert way.ratio == pytest.approx(8.5, rel=0.05)
    assert fastest_way(eager, "cpu", captured, None) == captured  # nothing beats another
    assert fastest_way(both, "gpu", captured, None) == captured  # nothing was measured there


def test_the_batch_from_which_throughput_stops_rising():
    assert enough({1: 10.0, 2: 18.0, 4: 29.0, 8: 30.0}) == 4
    measured = measured_batches(example_tables.cells())
    assert set(measured.model) == {"narrow", "wide", "deep"}
    for row in measured.itertuples():
        assert row.throughput_tokens_per_s >= 0.95 * row.best_throughput_tokens_per_s
    rising = pd.concat([cells({("fp32", "eager"): (100 * b, 100 * b)}, batch_size=b) for b in (1, 2, 4)])
    assert measured_batches(rising).still_rising.all()
    assert measured_batches(rising[rising.batch_size < 4]).empty
