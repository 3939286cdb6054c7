"""The figures: what they draw from ordinary and broken tables, and what kind of SVG they leave."""

import importlib
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.text import Text

from tests import example_comparisons, example_tables
from workflow_scripts.lib import csv_tables, plotting, quantities
from workflow_scripts.lib.audit import wording

INPUTS = {
    "comparison": ("runs", "processes", "findings"), "throughput": ("cells", "findings"),
    "effects": ("cells", "findings"), "step_time": ("cells", "findings"), "expected": ("cells", "ceilings", "findings"),
    "roofline": ("cells", "ceilings", "operator_costs", "findings"),
    "memory": ("cells", "findings"), "first_steps": ("cells", "findings"), "selection": ("selection",),
    "candidates": ("candidates", "selection"),
    "loss_over_tokens": ("curves",), "loss_over_time": ("curves",), "gradient_norm": ("curves",),
    "step_series": ("curves", "spikes"), "operators": ("operators",),
    "devices": ("runs", "findings"), "device_losses": ("curves",), "optimizers": ("optimizers",),
}  # fmt: skip


def draw(name: str, paths: dict[str, Path], folder: Path) -> tuple[str, pd.DataFrame]:
    """Runs one figure's script and returns its SVG and the table of what it drew."""
    script = importlib.import_module(f"workflow_scripts.draw_{name}")
    if name in ("optimizers", "step_series"):
        compared = example_comparisons.write(paths)
        paths = {**paths, "optimizers": compared["optimizer_sweep"], "spikes": compared["spikes"]}
    inputs = {key: [paths[key]] if key in ("selection", "candidates") else paths[key] for key in INPUTS[name]}
    figure, data = folder / f"{name}.svg", folder / f"{name}.csv"
    script.main(**inputs, figure=figure, data=data, spec={})
    return figure.read_text(encoding="utf-8"), csv_tables.read(data)


def all_failed() -> dict[str, pd.DataFrame]:
    """The tables of a study in which nothing could be measured."""
    cells = example_tables.cells()
    every = dict.fromkeys(cells.cell, "oom")
    runs = example_tables.runs().assign(status="error", step_time_s=None, throughput_tokens_per_s=None)
    empty = {
        name: getattr(example_tables, name)().head(0) for name in ("curves", "operators", "processes", "operator_costs")
    }
    return {"cells": example_tables.cells(failures=every), "runs": runs, **empty}


@pytest.mark.parametrize("name", INPUTS)
def test_a_figure_stands_alone_says_what_it_shows_and_takes_the_pages_colours(name, tmp_path):
    svg, drawn = draw(name, example_tables.write_study(tmp_path, n_devices=2), tmp_path)
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.get("data-caption")
    assert len(drawn) > 0
    assert "var(--ink," in svg
    assert not re.search(r"#0[ab]000\d", svg), "a stand-in colour was left in"
    assert not re.search(r'(?:href|src)="(?!#)', svg)
    assert "<script" not in svg


@pytest.mark.parametrize("name", [name for name, inputs in INPUTS.items() if "findings" in inputs])
def test_what_the_audit_bars_is_drawn_hollow_and_named_in_the_legend(name, tmp_path):
    finding = {"rule": "r", "severity": "error", "message": "", "numbers": {}}
    found = [finding | {"subject": subject} for subject in ("cpu/wide-b8-t64-fp32", "cpu/wide-baseline-s1")]
    svg, drawn = draw(name, example_tables.write_study(tmp_path, n_devices=2, findings=found), tmp_path)
    assert 0 < drawn.barred.sum() < len(drawn)
    assert f">{plotting.HOLLOW}<" in svg
    assert "hollow point" in ET.fromstring(svg).get("data-caption")
    svg, drawn = draw(name, example_tables.write_study(tmp_path, n_devices=2), tmp_path)
    assert not drawn.barred.any()
    assert plotting.HOLLOW not in svg


@pytest.mark.parametrize("name", sorted(set(INPUTS) - {"selection", "candidates"}))
def test_a_figure_without_data_says_why(name, tmp_path):
    svg, drawn = draw(name, example_tables.write_study(tmp_path, **all_failed()), tmp_path)
    assert "Nothing to draw: " in "".join(ET.fromstring(svg).itertext())
    assert len(drawn) == 0


def test_a_study_that_names_its_models_has_no_selection_to_draw(tmp_path):
    from workflow_scripts import draw_selection

    draw_selection.main(selection=[], figure=tmp_path / "selection.svg", data=tmp_path / "selection.csv", spec={})
    assert "selects none" in (tmp_path / "selection.svg").read_text()


@pytest.mark.parametrize("name", ["throughput", "loss_over_tokens", "operators"])
def test_the_same_tables_give_the_same_bytes(name, tmp_path):
    paths = example_tables.write_study(tmp_path)
    assert draw(name, paths, tmp_path / "a")[0] == draw(name, paths, tmp_path / "b")[0]


def test_ids_of_two_figures_in_one_page_do_not_clash(tmp_path):
    paths = example_tables.write_study(tmp_path)
    first, second = (
        set(re.findall(r' id="([^"]+)"', draw(n, paths, tmp_path)[0])) for n in ("throughput", "step_time")
    )
    assert first
    assert not first & second


def test_names_from_outside_are_text_and_never_markup_or_mathematics(tmp_path):
    cells = example_tables.cells()
    cells["model"] = cells.model.replace({"narrow": 'x"><script>alert(1)</script> $\\frac{ #0a0001 1.23456'})
    svg, drawn = draw("throughput", example_tables.write_study(tmp_path, cells=cells), tmp_path)
    assert "<script" not in svg
    assert "1.23456" in plotting.short(drawn.model.iloc[-1], 99) + "".join(ET.fromstring(svg).itertext())


def test_what_was_not_measured_is_not_drawn(tmp_path):
    failed = "wide-b8-t64-fp32"
    paths = example_tables.write_study(tmp_path, cells=example_tables.cells(failures={failed: "timeout"}))
    _, drawn = draw("throughput", paths, tmp_path)
    assert failed not in set(drawn.cell)
    assert drawn.throughput_tokens_per_s.notna().all()


def cells_with_memory(contexts: tuple[int, ...]) -> pd.DataFrame:
    """Cells of two devices, of which the second counts what tensors take."""
    cells = example_tables.cells(n_devices=2)
    cells = cells[cells.sequence_length == 64]
    cells = pd.concat([cells.assign(sequence_length=context, cell=cells.cell + str(context)) for context in contexts])
    counts = cells.device == cells.device.unique()[1]
    return cells.assign(peak_allocated_bytes=cells.n_params.where(counts) * 16.0)


def test_memory_is_what_each_device_can_tell_of_it(tmp_path):
    cells = cells_with_memory((64, 128))
    gpu = cells.peak_allocated_bytes.notna()
    svg, drawn = draw("memory", example_tables.write_study(tmp_path, cells=cells), tmp_path)
    told = drawn.groupby("device").agg({"quantity": "unique", "peak_bytes": "max"})
    assert [list(names) for names in told.quantity] == [["whole process"], ["allocated"]]
    assert list(told.peak_bytes) == [cells[~gpu].peak_process_bytes.max(), cells.peak_allocated_bytes.max()]
    assert ">allocated<" in svg


@pytest.mark.parametrize("low", [3.2e-4, 3.7e-4, 7e-4, 2e-3])
@pytest.mark.parametrize("reach", [1.3, 4, 65, 900, 2e4])
def test_ticks_of_three_panels_do_not_touch(low, reach):
    values = [low, low * reach]
    with plotting.style():
        figure, axes = plotting.panels(3, share=False)
        for axis in axes:
            axis.plot(values, values)
            plotting.log_axis(axis.xaxis, values)
            plotting.log_axis(axis.yaxis, values)
        figure.draw_without_rendering()
        for axis in axes:
            boxes = [label.get_window_extent() for label in axis.get_xticklabels()]
            assert all(left.x1 + 2 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize("name", INPUTS)
def test_titles_of_panels_do_not_touch(name, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plotting, "save", lambda canvas, figure, **words: (drawn.append(canvas), figure.write_text("")))
    tables = {"cells": cells_with_memory((64, 128, 1024, 2048))} if name == "memory" else {}
    draw(name, example_tables.write_study(tmp_path, n_devices=2, **tables), tmp_path)
    (canvas,) = drawn
    canvas.draw_without_rendering()
    titles = [text for axis in canvas.axes for text in axis.findobj(Text) if text.get_text() == axis.get_title("left")]
    # The page may set them in a font that is somewhat wider.
    boxes = [title.get_window_extent().expanded(1.1, 1.0) for title in titles if title.get_text()]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= canvas.bbox.x1 for box in boxes)


def test_missing_intervals_leave_points_without_bars(tmp_path):
    cells = example_tables.cells().assign(throughput_low_tokens_per_s=None, throughput_high_tokens_per_s=None)
    svg, drawn = draw("throughput", example_tables.write_study(tmp_path, cells=cells), tmp_path)
    assert len(drawn) == len(cells)
    assert "data-caption" in svg


def test_slow_steps_are_marked(tmp_path):
    paths = example_tables.write_study(tmp_path)
    _, drawn = draw("step_series", paths, tmp_path)
    found = csv_tables.read(example_comparisons.write(paths)["spikes"])
    assert len(found)
    assert set(drawn[drawn.cause.notna()].step) == set(found.step)


def test_a_first_step_of_ten_thousand_does_not_hide_the_others(tmp_path):
    curves = example_tables.curves()
    first = curves.step == curves.step.min()
    svg, drawn = draw("step_series", example_tables.write_study(tmp_path, curves=curves), tmp_path)
    assert "up to" not in svg
    slow = curves.assign(step_time_s=curves.step_time_s.where(~first, 10_000 * curves.step_time_s))
    svg, drawn = draw("step_series", example_tables.write_study(tmp_path, curves=slow), tmp_path)
    assert drawn.relative.max() > 1_000  # the table keeps it
    assert "up to" in svg
    assert "what is beyond the axis stands at its edge" in svg
    assert ">1k<" not in svg  # no tick up there


def test_many_panels_are_bounded_and_the_rest_is_told(tmp_path):
    curves = pd.concat([example_tables.curves(n_rows=12).assign(treatment=f"t{i:02d}") for i in range(15)])
    svg, drawn = draw("gradient_norm", example_tables.write_study(tmp_path, curves=curves), tmp_path)
    assert drawn.treatment.nunique() == plotting.MAX_PANELS
    assert "3\u00a0further panels" in svg


@pytest.mark.parametrize("name", ["loss_over_tokens", "loss_over_time", "gradient_norm", "step_series", "operators"])
def test_panels_on_one_scale_show_the_largest_of_them_whole(name, tmp_path, monkeypatch):
    curves, operators = example_tables.curves(), example_tables.operators()
    larger = curves.assign(loss=curves.loss + 2, val_loss=curves.val_loss + 2)
    larger[["step", "tokens", "elapsed_s"]] *= 3
    seen, save = [], plotting.save
    monkeypatch.setattr(plotting, "save", lambda canvas, *a, **k: (seen.extend(canvas.axes), save(canvas, *a, **k)))
    for small, large in ("ab", "ba"):  # whichever panel is drawn first
        both = pd.concat([curves.assign(treatment=small), larger.assign(treatment=large)])
        shares = [operators.assign(device=small), operators.assign(device=large, share=operators.share * 2)]
        paths = example_tables.write_study(tmp_path, curves=both, operators=pd.concat(shares))
        draw(name, paths, tmp_path)
    assert len(seen) >= 4
    for axis in seen:
        for line in axis.get_lines():
            x, y = (pd.Series(values, dtype=float) for values in line.get_data())
            assert line.get_transform() != axis.transData or x.max() <= axis.get_xlim()[1] * (1 + 1e-9)
            if "loss" in name and line.get_marker() not in ("None", None, ""):
                assert y.between(*axis.get_ylim()).all()


def test_an_empty_field_is_missing_and_the_word_na_is_a_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("device,model,step_time_s\nNA,null,\ncpu,,0.5\n")
    table = csv_tables.read(path)
    assert list(table.device) == ["NA", "cpu"]
    assert table.model.iloc[1] is None
    assert quantities.quantity(table.step_time_s.iloc[0], "s") == "not measured"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0315, "s", "31.5\u00a0ms"), (90.0, "s", "90.0\u00a0s"), (600.0, "s", "10.0\u00a0min"),
        (0.9999, "s", "1.00\u00a0s"),
        (2.5 * 2**30, "bytes", "2.50\u00a0GiB"), (33012.0, "tokens/s", "33.0k\u00a0tokens/s"),
        (None, "bytes", "not measured"),
        (float("nan"), "s", "not measured"), (0.0, "s", "0\u00a0s"), (950.0, "tokens/s", "950\u00a0tokens/s"),
    ],
)  # fmt: skip
def test_quantities_carry_their_unit(value, unit, text):
    assert quantities.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (9.996, "10.0"), (123456.7, "123,457"), (-0.5, "−0.500")]
)
def test_digits(value, text):
    assert quantities.digits(value) == text


def test_numbers_of_a_gpus_rate_carry_a_prefix_up_to_peta():
    """A roofline once had "1e+03T" at its axis, beside "100T"."""
    assert [plotting.plain(value) for value in (1e11, 1e14, 1e15, 2e15)] == ["100G", "100T", "1P", "2P"]
    assert [wording.scaled(value, "FLOP/s") for value in (0.69e12, 9.89e14, 1.98e15)] == [
        "0.69 TFLOP/s", "989 TFLOP/s", "1.98 PFLOP/s"
    ]  # fmt: skip
