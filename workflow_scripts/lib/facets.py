"""Splitting a table into the panels and series of a figure of small multiples, and saying what was left out."""

import dataclasses

import pandas as pd

from workflow_scripts.lib.plotting import MAX_PANELS, short
from workflow_scripts.lib.quantities import plural

PHRASES = {"sequence_length": "context {:,}", "batch_size": "batch {:,}"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panels:
    """Panels with their titles, and a sentence on those that did not fit ("" if all did)."""

    titles: list[str]
    frames: list[pd.DataFrame]
    left_out: str

    @property
    def drawn(self) -> pd.DataFrame:
        """The rows of all panels, in order: what the figure's CSV holds."""
        return pd.concat(self.frames, ignore_index=True)


def split(frame: pd.DataFrame, keys: list[str]) -> Panels:
    """Makes one panel for each combination of `keys`; titles name only the keys that vary."""
    varying = [key for key in keys if frame[key].nunique(dropna=False) > 1]
    titles, frames = [], []
    for values, rows in frame.groupby(keys, sort=True, dropna=False):
        named = dict(zip(keys, values, strict=True))
        titles.append(" · ".join(short(PHRASES.get(key, "{}").format(named[key])) for key in varying))
        frames.append(rows)
    spare = len(frames) - MAX_PANELS
    left_out = (
        f" {plural(spare, 'further panel')} are left out here; their values are in the tables." if spare > 0 else ""
    )
    return Panels(titles=titles[:MAX_PANELS], frames=frames[:MAX_PANELS], left_out=left_out)


def timed_steps(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with a step time: whole optimizer steps that were measured, one process each (the first)."""
    if cells.empty:
        return cells
    kept = cells[(cells.status == "ok") & (cells["mode"] == "step") & cells.step_time_s.notna()]
    kept = kept.sort_values("process", kind="stable")
    keys = ["device", "model", "batch_size", "sequence_length", "precision", "execution"]
    return kept.drop_duplicates(keys).sort_values(keys, kind="stable").reset_index(drop=True)


def why_none(cells: pd.DataFrame) -> str:
    """The reason why there is no measured step to draw."""
    if cells.empty:
        return "the grid has no cells."
    return f"none of {plural(len(cells), 'cell')} has a measured step."


def variants(frame: pd.DataFrame) -> pd.Series:
    """Names what sets cells of one model apart besides batch and context: precision and execution, where they vary."""
    parts = [frame[key].astype(str) for key in ("precision", "execution") if frame[key].nunique() > 1]
    return parts[0].str.cat(parts[1:], sep=" ") if parts else pd.Series("", index=frame.index)
