"""Reading and writing the CSV tables of a study: an empty field is a missing value, and nothing else is."""

from pathlib import Path

import pandas as pd


def read(path: Path) -> pd.DataFrame:
    """Reads a table; only the empty field counts as missing, so that a device called `NA` or `null` keeps its name.

    Names and texts (columns of type object) come back as `str` or None, numbers as numbers or NaN.
    """
    if path.stat().st_size == 0:
        return pd.DataFrame()
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXT, str))
    texts = frame.columns.intersection(TEXT)
    frame[texts] = frame[texts].astype(object).where(frame[texts].notna(), None)
    return frame


def write(frame: pd.DataFrame, path: Path) -> None:
    """Writes a table, missing values as empty fields and floats so that they read back the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, lineterminator="\n")


def with_columns(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Returns a copy that has all of `names`, filling absent columns with missing values."""
    absent = [name for name in names if name not in frame.columns]
    return frame.assign(**{name: None if name in TEXT else float("nan") for name in absent})


TEXT = (
    "device", "type", "name", "driver", "torch", "python", "platform", "host", "cell", "model", "architecture",
    "precision", "execution", "mode", "status", "reason", "memory_method", "stop", "record", "run", "treatment",
    "origin", "operator", "category", "phase", "code", "commit", "started_at", "ended_at", "quantity", "unit",
    "source", "predicted_bound", "kind", "direction", "role", "bound", "check_reason",
    "compute_capability", "published_row", "our_row",
)  # fmt: skip
