"""The report's part on devices beside each other: who is faster, where that comes from, what it costs."""

import math
from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.claims import Claim, judged
from workflow_scripts.lib.device_comparison import MILLION
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown
from workflow_scripts.lib.quantities import SPACE, digits, is_missing, listing, percent, quantity, span, times

BOUND_WORDS = {
    "launch": "launch-bound (the device waits for its host)", "bandwidth": "bandwidth-bound (it waits for memory)",
    "compute": "compute-bound (it waits for arithmetic)",
}  # fmt: skip
FIRST_STEP = 0.1  # share of the time to a loss from which on the first step's part in it is told
COMPARED = [
    Column(name="name", title="model", axis=True),
    Column(name="device_a", title="faster device"),
    Column(name="device_b", title="other device"),
    Column(name="ratio", title="ratio", kind="ratio", measured=True),
    Column(name="ratio", title="interval", kind="", low="ratio_low", high="ratio_high", measured=True),
    Column(name="verdict", title="verdict", measured=True),
    Column(name="ceiling_ratio", title="ratio of ceilings", kind="ratio", measured=True),
    Column(name="target_loss", title="loss that both reached", kind="loss", measured=True),
    Column(name="time_to_loss_a_s", title="time to it, faster", kind="s", measured=True),
    Column(name="time_to_loss_b_s", title="time to it, other", kind="s", measured=True),
]
SIDES = [
    Column(name="name", title="model", axis=True),
    Column(name="device", title="device"),
    Column(name="execution", title="execution", axis=True),
    Column(name="throughput_tokens_per_s", title="throughput", kind="tokens/s", measured=True),
    Column(name="share", title="share of its ceiling", kind="percent", measured=True),
    Column(name="bound", title="bound by", measured=True),
    Column(name="energy_j", title="energy of a million tokens (J)", kind="number", measured=True),
    Column(name="cost", title="cost of a million tokens", measured=True),
]


def section(comparison: pd.DataFrame, devices: pd.DataFrame, study: str, found: list[dict]) -> dict[str, list]:
    """The parts of the page, and the claims that are withheld from it; nothing with fewer than two devices.

    Args:
        comparison: rows of device_comparison.csv.
        devices: rows of devices.csv.
        study: its name.
        found: the audit's findings.
    """
    if comparison.empty:
        return {"parts": [], "withheld": []}
    names = dict(zip(devices.device, devices.name, strict=True))
    claims = [judged(claim, found) for row in comparison.to_dict("records") for claim in row_claims(row, names)]
    told, own = [claim.text for claim in claims if claim.withheld is None], sides(comparison)
    part = Part(
        title="Throughput, and where its ratio comes from",
        sentences=[*origins(devices, study), *told, *lacking(own)],
        figures=[("devices", "Throughput by device"), ("device_losses", "Loss on every device")],
        tables=[
            *shown(comparison, COMPARED, study, "Devices beside each other, model by model", "device_comparison"),
            *shown(own, SIDES, study, "What each device makes of itself", "device_comparison"),
        ],
    )  # fmt: skip
    return {"parts": [part], "withheld": [claim for claim in claims if claim.withheld is not None]}


def sides(comparison: pd.DataFrame) -> pd.DataFrame:
    """A row for each model and device, from the pairs that it stands in."""
    rows = {}
    for row in comparison[comparison.ratio.notna()].to_dict("records"):
        for end in "ab":
            cost = row[f"cost_per_million_tokens_{end}"]
            rows[row["name"], row[f"device_{end}"]] = {
                "name": row["name"], "device": row[f"device_{end}"], "execution": row[f"execution_{end}"],
                "throughput_tokens_per_s": row[f"throughput_{end}_tokens_per_s"], "share": row[f"share_{end}"],
                "bound": row[f"bound_{end}"], "energy_j": MILLION * (row[f"energy_per_token_{end}_j"] or math.nan),
                "cost": None if is_missing(cost) else f"{digits(cost)}{SPACE}{row['currency']}",
            }  # fmt: skip
    return pd.DataFrame(list(rows.values()), columns=[column.name for column in SIDES])


def origins(devices: pd.DataFrame, study: str) -> Iterator[str]:
    """Says of each device that was measured elsewhere where its numbers come from."""
    found = devices[devices.origin == "recorded"] if "origin" in devices else devices.iloc[:0]
    for device in found.itertuples():
        by = "" if is_missing(device.torch) else f" with torch {device.torch}"
        yield (
            f"`{device.device}` ({device.name}) was not measured here: its numbers come from "
            f"`recordings/{study}/{device.device}.zip`, recorded{by} on the machine that has it. "
            "`recordings: ignore` in the config leaves it out."
        )


def lacking(own: pd.DataFrame) -> Iterator[str]:
    """What devices have no numbers for, told once for all models."""
    for column, what, why in (
        ("share", "share of a ceiling", "no rate of products in the training's precision was measured"),
        ("energy_j", "energy", "that of training steps was not counted there"),
        ("cost", "cost", "the study states no price of an hour (`prices`)"),
    ):
        without = dict.fromkeys(own.device[own[column].isna()])
        if without:
            yield f"No {what} is given for {listing(f'`{device}`' for device in without)}: {why}."


def row_claims(row: dict, names: dict[str, str]) -> list[Claim]:
    """The sentences on one model and pair of devices."""
    a, b = _names(row, names)
    records = tuple(str(row["records"] or "").split()) if not is_missing(row["records"]) else ()
    common = {
        "topic": "devices", "records": records,
        "subjects": frozenset({row["device_a"], row["device_b"], *records}),
    }  # fmt: skip
    if is_missing(row["ratio"]):
        text = f"`{row['name']}` on {a} and on {b} cannot be compared: {row['not_compared']}."
        return [Claim(text=text, numbers={}, **common)]
    within = span(row["ratio_low"], row["ratio_high"])
    speeds = (
        f"{quantity(row['throughput_a_tokens_per_s'], 'tokens/s')} against "
        f"{quantity(row['throughput_b_tokens_per_s'], 'tokens/s')}"
    )
    if row["verdict"] in ("same", "undecided"):
        undecided = f"Whether `{row['name']}` trains faster on {a} or on {b} is undecided"
        text = f"`{row['name']}` trains as fast on {a} as on {b}" if row["verdict"] == "same" else undecided
        text += f": {speeds}, a ratio of {times(row['ratio'])} ({within})."
    else:
        text = f"`{row['name']}` trains {times(row['ratio'])} ({within}) as fast on {a} as on {b}: {speeds}"
        if row["execution_a"] != row["execution_b"]:
            text += f", each at what it has, {row['execution_a']} and {row['execution_b']}"
        text += "."
    numbers = {"ratio": row["ratio"], "low": row["ratio_low"], "high": row["ratio_high"]}
    claims = [Claim(text=f"{text}{_whence(row, a, b)}", numbers=numbers, **common)]
    if not is_missing(row["target_loss"]):
        claims.append(_time_to_loss(row, a, b, common))
    return [*claims, *_per_token(row, a, b, common)]


def _names(row: dict, names: dict[str, str]) -> tuple[str, str]:
    """What the two devices are called: by their hardware, and by their id too where that is equal."""
    ids = [str(row[f"device_{end}"]) for end in "ab"]
    a, b = (str(names.get(device, device)) for device in ids)
    return (f"{a} (`{ids[0]}`)", f"{b} (`{ids[1]}`)") if a == b else (a, b)


def _whence(row: dict, a: str, b: str) -> str:
    """Where the ratio comes from: ceilings and the shares of them, and what bounds each step."""
    text = ""
    shares = [row["share_a"], row["share_b"]]
    if not is_missing(row["ceiling_ratio"]) and not any(is_missing(share) for share in shares):
        text = f" Of the best rate of products of each, it reaches {percent(shares[0])} on {a} and "
        text += f"{percent(shares[1])} on {b}; that of {a} is {times(row['ceiling_ratio'])} as high."
    known = [(name, BOUND_WORDS[row[f"bound_{end}"]]) for name, end in ((a, "a"), (b, "b"))
             if not is_missing(row[f"bound_{end}"])]  # fmt: skip
    if known:
        told = listing(f"{words} on {name}" for name, words in known)
        text += f" By {row['bound_basis']}, its step is {told}."
    return text


def _per_token(row: dict, a: str, b: str, common: dict) -> Iterator[Claim]:
    """What a million tokens take on each device in energy and in money, as far as it is known."""
    told, numbers = [], {}
    for end, name in (("a", a), ("b", b)):
        joules, cost = row[f"energy_per_token_{end}_j"], row[f"cost_per_million_tokens_{end}"]
        parts = [] if is_missing(joules) else [f"{digits(joules * MILLION)}{SPACE}J"]
        parts += [] if is_missing(cost) else [f"{digits(cost)}{SPACE}{row['currency']}"]
        told += [f"{listing(parts)} on {name}"] if parts else []
        numbers |= {} if is_missing(joules) else {f"energy_per_token_{end}_j": joules}
        numbers |= {} if is_missing(cost) else {f"cost_per_million_tokens_{end}": cost}
    if told:
        text = f"A million tokens of training `{row['name']}` take {listing(told)}."
        yield Claim(text=text, numbers=numbers, **common)


def _time_to_loss(row: dict, a: str, b: str, common: dict) -> Claim:
    told = []
    for end, name in (("a", a), ("b", b)):
        low, high = row[f"time_to_loss_low_{end}_s"], row[f"time_to_loss_high_{end}_s"]
        seeds = "one seed" if is_missing(low) else f"{quantity(low, 's')} to {quantity(high, 's')} over seeds"
        first, taken = row[f"first_step_{end}_s"], row[f"time_to_loss_{end}_s"]
        if not is_missing(first) and first > FIRST_STEP * taken:
            seeds += f", beside a first step of up to {quantity(first, 's')}"
        told.append(f"{quantity(taken, 's')} of training on {name} ({seeds})")
    text = f"`{row['name']}` came to a validation loss of {row['target_loss']:.3f} nats per token, the lowest that "
    text += f"every run on both reached, after {listing(told)}."
    return Claim(text=text, numbers={"target_loss": row["target_loss"]}, **common)
