"""What the figures of experiments share: treatments in order, and panels of one row a treatment."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from workflow_scripts.lib import plotting
from workflow_scripts.lib.experiments import changed, levels_of
from workflow_scripts.lib.quantities import plural

MOST_ROWS = 24
VERDICTS = {"better": plotting.SERIES[2], "worse": plotting.SERIES[1], "same": plotting.SERIES[0]}
VERDICTS["undecided"] = plotting.FAINT


def in_order(rows: pd.DataFrame) -> tuple[list[str], str]:
    """Orders treatments, those of one level first, and says which did not fit in ("" if all did)."""
    first = rows.drop_duplicates("treatment").to_dict("records")
    ordered = [row["treatment"] for row in sorted(first, key=lambda row: len(changed(levels_of(row))))]
    spare = len(ordered) - MOST_ROWS
    left_out = f" {plural(spare, 'further treatment')} stand in the table." if spare > 0 else ""
    return ordered[:MOST_ROWS], left_out


def rows_of(axes: Sequence[Axes], names: list[str], columns: int) -> None:
    """Gives each row of panels one line a treatment, the first at the top, named at the left."""
    for place, axis in enumerate(axes):
        axis.set_yticks(range(len(names)), [plotting.short(name, 30) for name in names] if names else [])
        axis.tick_params(labelleft=place % columns == 0)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
