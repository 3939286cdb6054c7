"""A study's tables as evidence for or against what a document claims, and the verdicts that there are."""

import dataclasses

import pandas as pd

HOLDS, DOES_NOT, CANNOT = "holds", "does not hold", "cannot be said"

Judgement = tuple[str, str]
"""A verdict, and the numbers that it rests on in words."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A study's tables by name: `evidence["runs"]`; one that there is not has no rows."""

    tables: dict[str, pd.DataFrame]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables.get(name, pd.DataFrame())
