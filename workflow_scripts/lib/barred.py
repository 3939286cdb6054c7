"""Which rows the audit bars from every ranking, for figures: they draw them hollow and say so in legend and caption."""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts.lib.claims import barred_rows
from workflow_scripts.lib.quantities import plural


def mark(rows: pd.DataFrame, identity: str, findings: Path) -> pd.DataFrame:
    """Adds the column `barred` to rows with `device`, `record` and their id in the column `identity`."""
    found = json.loads(findings.read_text(encoding="utf-8"))
    return rows.assign(barred=barred_rows(rows, identity, found) if len(rows) else pd.Series(dtype=bool))


def told(rows: pd.DataFrame) -> str:
    """The sentence of a caption on the rows that are drawn hollow; empty where there are none."""
    n = int(rows.barred.sum())
    return (
        f" {plural(n, 'hollow point')} {'is' if n == 1 else 'are'} barred by the audit and ranked nowhere." if n else ""
    )
