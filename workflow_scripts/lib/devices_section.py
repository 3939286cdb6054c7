"""The report's part on devices beside each other: who is faster, where that comes from, what it costs."""

import pandas as pd

from workflow_scripts.lib.claims import Claim, judged
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown
from workflow_scripts.lib.quantities import digits, is_missing, listing, percent, quantity, span, times

BOUND_WORDS = {
    "launch": "waits for launches", "bandwidth": "waits for memory traffic", "compute": "waits for arithmetic",
}  # fmt: skip
COMPARED = [
    Column(name="name", title="model", axis=True),
    Column(name="device_a", title="faster device"),
    Column(name="device_b", title="other device"),
    Column(name="ratio", title="ratio", kind="ratio", measured=True),
    Column(name="ratio", title="interval", kind="", low="ratio_low", high="ratio_high", measured=True),
    Column(name="verdict", title="verdict", measured=True),
    Column(name="ceiling_ratio", title="ratio of ceilings", kind="ratio", measured=True),
    Column(name="time_to_loss_a_s", title="to the loss, faster", kind="s", measured=True),
    Column(name="time_to_loss_b_s", title="to the loss, other", kind="s", measured=True),
    Column(name="not_compared", title="not compared"),
]
SIDES = [
    Column(name="name", title="model", axis=True),
    Column(name="device", title="device"),
    Column(name="execution", title="execution", axis=True),
    Column(name="throughput_tokens_per_s", title="throughput", kind="tokens/s", measured=True),
    Column(name="share", title="share of its ceiling", kind="percent", measured=True),
    Column(name="bound", title="the step", measured=True),
    Column(name="energy_per_token_j", title="joules a token", kind="number", measured=True),
    Column(name="cost", title="a million tokens"),
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
    origin = devices.get("origin", pd.Series(dtype=object))
    recorded = [str(device) for device in devices.device[origin == "recorded"]]
    sentences = [claim.text for claim in claims if claim.withheld is None]
    if recorded:
        told = listing(f"`{device}`" for device in recorded)
        sentences.insert(0, f"{told} {'was' if len(recorded) == 1 else 'were'} measured elsewhere and recorded there.")
    part = Part(
        title="Throughput, and where its ratio comes from",
        sentences=sentences,
        figures=[("devices", "Throughput by device"), ("device_losses", "Loss on every device")],
        tables=[
            *shown(comparison, COMPARED, study, "Devices beside each other, model by model", "device_comparison"),
            *shown(sides(comparison), SIDES, study, "What each device makes of itself", "device_comparison"),
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
                "bound": BOUND_WORDS.get(row[f"bound_{end}"]), "energy_per_token_j": row[f"energy_per_token_{end}_j"],
                "cost": "not stated" if is_missing(cost) else f"{digits(cost)}\u00a0{row['currency']}",
            }  # fmt: skip
    columns = [column.name for column in SIDES]
    return pd.DataFrame(list(rows.values()), columns=columns).sort_values("name", kind="stable")


def row_claims(row: dict, names: dict[str, str]) -> list[Claim]:
    """The sentences on one model and pair of devices."""
    a, b = (str(names.get(row[f"device_{end}"], row[f"device_{end}"])) for end in "ab")
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
        whether = "as fast as" if row["verdict"] == "same" else "faster or slower than"
        text = f"`{row['name']}` trains on {a} {whether} on {b}{'' if row['verdict'] == 'same' else ', undecided'}: "
        text += f"{speeds}, a ratio of {times(row['ratio'])} ({within})."
    else:
        text = f"`{row['name']}` trains {times(row['ratio'])} ({within}) as fast on {a} as on {b}: {speeds}"
        if row["execution_a"] != row["execution_b"]:
            text += f", each at what it has, {row['execution_a']} and {row['execution_b']}"
        text += "."
    numbers = {"ratio": row["ratio"], "low": row["ratio_low"], "high": row["ratio_high"]}
    claims = [Claim(text=f"{text}{_whence(row, a, b)}", numbers=numbers, **common)]
    if not is_missing(row["target_loss"]):
        claims.append(_time_to_loss(row, a, b, common))
    return claims


def _whence(row: dict, a: str, b: str) -> str:
    """Where the ratio comes from: ceilings and the shares of them, and what bounds each step."""
    text = ""
    shares = [row["share_a"], row["share_b"]]
    if not is_missing(row["ceiling_ratio"]) and not any(is_missing(share) for share in shares):
        text = f" Its ceiling is {times(row['ceiling_ratio'])} as high, of which it reaches {percent(shares[0])}, "
        text += f"the other {percent(shares[1])} of its own."
    known = [(name, BOUND_WORDS[row[f"bound_{end}"]]) for name, end in ((a, "a"), (b, "b"))
             if not is_missing(row[f"bound_{end}"])]  # fmt: skip
    if known:
        told = listing(f"on {name} a step {words}" for name, words in known)
        text += f" By {row['bound_basis']}, {told}."
    return text


def _time_to_loss(row: dict, a: str, b: str, common: dict) -> Claim:
    told = []
    for end, name in (("a", a), ("b", b)):
        low, high = row[f"time_to_loss_low_{end}_s"], row[f"time_to_loss_high_{end}_s"]
        seeds = "one seed" if is_missing(low) else f"{quantity(low, 's')} to {quantity(high, 's')} over seeds"
        told.append(f"{quantity(row[f'time_to_loss_{end}_s'], 's')} of training on {name} ({seeds})")
    text = f"`{row['name']}` came to a validation loss of {row['target_loss']:.3f} nats per token, the lowest that "
    text += f"every run on both reached, after {listing(told)}."
    return Claim(text=text, numbers={"target_loss": row["target_loss"]}, **common)
