"""Lines over batch size, one for each model, in a panel for each device and context: throughput, memory."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, csv_tables, facets, plotting

_KEYS = ["device", "sequence_length"]
_IDENTITY = ["model", "n_layer", "n_embd", "precision", "execution", "batch_size", "cell", "record", "barred"]
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def draw(
    rows: pd.DataFrame, value: str, low: str | None, high: str | None, *, label: str, caption: str, scale: float,
    figure: Path, data: Path,
) -> None:  # fmt: skip
    """Draws `value` (with its interval, if `low` and `high` name columns) over batch size and writes what it drew.

    Args:
        rows: measured cells (`facets.timed_steps`) with `barred`, not empty; where devices may tell different things,
            with `quantity`, which names them.
        value: column to draw.
        low: column with the lower end of its interval, or None.
        high: column with the upper end.
        label: the y axis with its unit.
        caption: the sentence that says what the figure shows; what had to be left out is added.
        scale: what a value is divided by to be in the unit of `label`.
        figure: SVG to write.
        data: CSV to write.
    """
    panels = facets.split(rows.assign(variant=facets.variants(rows)), _KEYS)
    drawn = panels.drawn
    told = ["quantity"] if "quantity" in drawn else []
    differ = any(drawn[name].nunique() > 1 for name in told)
    styles = plotting.series_styles(drawn.model.unique())
    dashes = {variant: _DASHES[i % len(_DASHES)] for i, variant in enumerate(drawn.variant.value_counts().index)}
    with plotting.style():
        n_contexts = drawn.sequence_length.nunique()
        whole = len(panels.frames) == n_contexts * drawn.device.nunique() and n_contexts <= 4
        columns = n_contexts if whole else 3
        canvas, axes = plotting.panels(len(panels.frames), columns=columns, share="row" if whole else True)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(f"{title}\n{frame.quantity.iloc[0]}" if differ else title)
            for (model, variant), line in _in_order(frame, list(styles), list(dashes)):
                name = plotting.short(f"{model} {variant}".strip())
                x, y = line.batch_size, line[value] / scale
                plotting.points(axis, x, y, line.barred, **styles[model], linestyle=dashes[variant], label=name)
                if low and line[low].notna().any():
                    axis.vlines(
                        x, line[low] / scale, line[high] / scale, color=styles[model]["color"], linewidth=3, alpha=0.35
                    )
            plotting.log_axis(axis.xaxis, drawn.batch_size, base=2)
            _scale(axis, drawn[drawn.device.isin(frame.device) if whole else slice(None)][value] / scale)
        plotting.label_axes(canvas, "batch size (sequences per step)", label)
        plotting.legend(canvas, axes)
        alt = f"Lines of {label} over batch size, one for each of {len(styles)} models, in {len(axes)} panels."
        plotting.save(canvas, figure, caption=caption + barred.told(drawn) + panels.left_out, alt=alt)
    ends = [column for column in (low, high) if column]
    csv_tables.write(drawn[[*_KEYS, *told, *_IDENTITY, value, *ends]], data)


def _scale(axis: plotting.Axes, values: pd.Series) -> None:
    """Draws from zero what differs little, and on a logarithmic axis what differs much."""
    if values.max() > 3 * values.min():
        plotting.log_axis(axis.yaxis, values)
    else:
        plotting.linear_axis(axis.yaxis)
        axis.set_ylim(0, values.max() * 1.08)


def _in_order(
    frame: pd.DataFrame, models: list[str], variants: list[str]
) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """Groups a panel's rows into lines, in the order of the legend."""
    groups = dict(list(frame.groupby(["model", "variant"])))
    for key in sorted(groups, key=lambda key: (models.index(key[0]), variants.index(key[1]))):
        yield key, groups[key]
