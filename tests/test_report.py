"""The report: whole, offline, escaped, readable as text, the same each time, and there even if all else failed."""

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests import example_comparisons, example_probes, example_tables
from tests.test_plotting import INPUTS, all_failed, draw
from workflow_scripts import render_report
from workflow_scripts.lib import csv_tables, page, sections

REPORT = Path(__file__).parents[1] / "report"
TABLES = ("cells", "runs", "devices", "operators", "processes", "ceilings", "memory", "fits", "timers")
FACTS = ("cost_model", "corpus", "findings", "study")


class Text(HTMLParser):
    """Reads what a text extraction would: tags and their attributes, and all text outside the style sheet."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.parts, self._open = [], [], []
        self.feed(html)
        self.text = " ".join("".join(self.parts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("span", "code", "b", "a"):
            self.parts.append(" ")
        self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data):
        if "style" not in self._open:
            self.parts.append(data)


def render(folder, paths, figures=INPUTS, samples=None, recommendation=()):
    for name in figures:
        draw(name, paths, folder / "figures")
    others = (recommendation, example_probes.write(folder).values(), example_comparisons.write(paths).values())
    render_report.main(
        tables=[*(paths[name] for name in TABLES), *itertools.chain(*others)],
        **{name: paths[name] for name in FACTS}, selection=[paths["selection"]],
        samples=example_tables.write_samples(folder) if samples is None else samples, recordings=[],
        figures=[folder / "figures" / f"{name}.svg" for name in figures],
        templates=[REPORT / "report.html.j2"], style=REPORT / "style.css",
        report=folder / "report.html", spec={"study": "example"},
    )  # fmt: skip
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    cells = example_tables.cells(failures={"wide-b8-t64-fp32": "oom"})
    return render(folder, example_tables.write_study(folder, cells=cells))


@pytest.mark.parametrize(
    ("names", "title"),
    [(["A", "B", "C"], "on A, B and C"), (["A", "A"], "on A"), ([], "on no device")],
)
def test_the_title_names_each_hardware_once(names, title):
    source = (REPORT / "report.html.j2").read_text(encoding="utf-8")
    (heading,) = re.findall(r"<h1>(.*)</h1>", source)
    hardware = {f"device{i}": name for i, name in enumerate(names)}
    assert page.environment(REPORT).from_string(heading).render(hardware=hardware).endswith(title)


def test_strings_from_outside_are_escaped(report):
    page_read = Text(report)
    assert not [tag for tag, _ in page_read.tags if tag in ("script", "b") and tag == "script"]
    assert example_tables.HOSTILE in page_read.text
    assert "alert('x')</script> & the LORD" in page_read.text
    assert "9.1 GiB <of> 8" in page_read.text
    assert "note: <i>hostile</i>" in page_read.text


def test_nothing_is_loaded_from_elsewhere(report):
    loads = {"src", "srcset", "data", "poster", "background", "action"}
    for tag, attributes in Text(report).tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "embed", "base")
        assert not loads & set(attributes)
        target = attributes.get("href", "#")
        assert not re.match(r"(?i)[a-z]+:|//|/", target), f"{target} is not relative"
    style = (REPORT / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_every_measured_value_stands_in_the_text(report):
    text = Text(report).text
    cells = example_tables.cells(failures={"wide-b8-t64-fp32": "oom"})
    for row in cells.dropna(subset="step_time_s").itertuples():
        assert page.digits(row.step_time_s / 1e-3) in text
        assert page.digits(row.throughput_tokens_per_s / 1e3) in text
        assert page.count(row.n_params) in text
    for row in example_tables.runs().itertuples():
        assert f"{row.final_val_loss:.4f}" in text
    for operator in set(example_tables.operators().operator):
        assert operator in text


def test_claims_and_captions_carry_numbers_and_records(report):
    assert re.search(r"trains 1\.3\d× \(1\.\d\d–1\.\d\d\) as many tokens", Text(report).text)
    hrefs = {attributes.get("href") for _, attributes in Text(report).tags}
    assert "devices/cpu/runs/wide-baseline-s1/run.json" in hrefs
    assert "devices/cpu/cells/wide-b16-t64-fp32.json" in hrefs
    assert {f"figures/{name}.csv" for name in set(INPUTS) - {"devices", "device_losses"}} <= hrefs  # of one device


def test_a_failed_cell_stands_with_its_reason_and_removes_nothing(report):
    text = Text(report).text
    assert "out of memory: asked for 9.1 GiB <of> 8" in text
    assert "Of 21 cells, 1 has no measurement: 1 out of memory" in text


def test_the_dates_are_those_of_the_records(report):
    assert "Measured 4–5\u00a0March\u00a02025" in " ".join(Text(report).parts)


def test_missing_values_are_named_and_print_as_no_number(tmp_path):
    paths = example_tables.write_study(tmp_path)
    identity = "n_layer n_head n_embd n_params n_params_non_embedding flops_per_token batch_size sequence_length seed"
    for name in TABLES:
        table = csv_tables.read(paths[name])
        optional = [column for column in table.select_dtypes("number") if column not in identity.split()]
        table = table.astype(dict.fromkeys(optional, float))
        table.loc[table.index[::2], optional] = float("nan")
        csv_tables.write(table, paths[name])
    text = Text(render(tmp_path, paths, figures=())).text
    assert "not measured" in text
    assert "spread unknown" in text
    assert "Not measured here: compile" in text
    assert not re.search(r"(?<![\d.,])0(\.0+)?\u00a0?(MiB|ms|GiB|B)\b", text)
    assert not re.search(r"(?<![\w.])(nan|NaN|None|NaT|<NA>|inf)(?!\w)", text)


def test_a_study_in_which_everything_failed_has_a_report(tmp_path):
    tables = all_failed()
    paths = example_tables.write_study(tmp_path, cost_model={"devices": {}}, **tables)
    text = Text(render(tmp_path, paths, samples=[], figures=("comparison", "throughput"))).text
    assert "Nothing could be measured" in text
    assert "Nothing to draw" in text
    assert "Of 21 cells, 21 have no measurement" in text


def test_tables_without_rows_have_a_report(tmp_path):
    empty = {
        name: getattr(example_tables, name)().head(0) for name in ("cells", "runs", "curves", "operators", "processes")
    }
    text = Text(
        render(tmp_path, example_tables.write_study(tmp_path, findings=[], **empty), samples=[], figures=())
    ).text
    assert "The grid has no cells" in text
    assert "found nothing to object to" in text


def test_of_many_samples_each_models_first_stand_open(tmp_path):
    runs = pd.DataFrame([
        {"device": "cpu", "run": f"t{treatment}-s{seed}", "seed": seed, "final_val_loss": 1.5}
        for treatment in range(5) for seed in (1, 2)
    ])  # fmt: skip
    paths = [tmp_path / "devices" / "cpu" / "runs" / run / "samples.txt" for run in runs.run]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("To be", encoding="utf-8")
    shown = sections.samples(paths, runs)
    opened = [sample["run"] for sample in shown["open"]]
    assert len(opened) == sections.SHOWN_SAMPLES
    assert opened[:5] == [f"t{treatment}-s1" for treatment in range(5)]
    assert len(shown["more"]) == len(runs) - len(opened)
    assert sections.samples([], runs) == {}


def test_two_devices_are_named_and_compared(tmp_path):
    text = Text(render(tmp_path, example_tables.write_study(tmp_path, n_devices=2), figures=("comparison",))).text
    assert "as fast on Example GPU as on Chip" in text


def test_a_study_without_a_selection_says_so(tmp_path):
    paths = example_tables.write_study(tmp_path, selection={})
    assert "none were selected" in Text(render(tmp_path, paths, figures=())).text


def test_a_withheld_claim_says_why(tmp_path):
    finding = {"rule": "r", "severity": "error", "doubts": "all", "subject": "cpu", "message": "its clock is wrong <x>"}
    found = [finding | {"advice": "", "numbers": {}}]
    text = Text(render(tmp_path, example_tables.write_study(tmp_path, findings=found), figures=())).text
    assert "is withheld: cpu: its clock is wrong <x>" in text
    assert "as many tokens per second as" not in text


def test_no_number_is_typed_into_a_template():
    for template in (REPORT / name for name in ("report.html.j2", "parts.html.j2")):
        text = re.sub(r"\{[{%#].*?[}%#]\}", " ", template.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"<[^>]*>", " ", text)
        assert not re.search(r"\d", text), template.name


def test_the_same_study_gives_the_same_bytes(tmp_path):
    first, second = (tmp_path / name for name in ("a", "b"))
    figures = ("comparison",)
    rendered = [render(folder, example_tables.write_study(folder), figures=figures) for folder in (first, second)]
    assert rendered[0] == rendered[1]


def test_five_hundred_cells_and_long_runs_stay_below_ten_megabytes(tmp_path):
    once, long = example_tables.cells(), example_tables.curves(n_rows=500)
    cells = pd.concat([once.assign(model=once.model + str(i), cell=once.cell + f"-{i}") for i in range(24)])
    curves = pd.concat([long.assign(treatment=f"t{i}") for i in range(12)])
    assert len(cells) > 500
    noise = np.random.default_rng(1).normal(1, 0.02, len(curves))
    paths = example_tables.write_study(tmp_path, cells=cells, curves=curves.assign(loss=curves.loss * noise))
    html = render(tmp_path, paths, figures=("throughput", "loss_over_tokens", "step_series"))
    assert len(html.encode()) < 4e6  # three of the largest; all figures together are less than three times as large


@pytest.mark.parametrize(
    ("record", "link"),
    [
        ("results/s/devices/cpu/cells/a b.json", "devices/cpu/cells/a%20b.json"),
        ("devices/cpu/cells/a.json", "devices/cpu/cells/a.json"),
        ("../../etc/passwd", None), ("/etc/passwd", None), ("javascript:alert(1)", None), (None, None),
        ("results/other/x.json", None),
    ],
)  # fmt: skip
def test_only_records_of_the_study_are_linked(record, link):
    assert page.record_link(record, "s") == link


def test_every_data_file_says_exactly_what_is_drawn(tmp_path):
    paths = example_tables.write_study(tmp_path)
    _, drawn = draw("throughput", paths, tmp_path)
    cells = csv_tables.read(paths["cells"])
    merged = drawn.merge(cells, on=["device", "cell"], suffixes=("", "_table"))
    assert len(merged) == len(cells)
    assert (merged.throughput_tokens_per_s == merged.throughput_tokens_per_s_table).all()


def test_findings_of_one_rule_stand_together_and_beside_the_rows(tmp_path):
    found = json.loads((example_tables.write_study(tmp_path)["findings"]).read_text()) * 5
    html = render(tmp_path, example_tables.write_study(tmp_path, findings=found), figures=())
    assert "The audit has 5 warnings" in Text(html).text
    assert "2 more" in Text(html).text
    assert html.count('<td class="doubts">wide_spread</td>') == 1


def test_what_a_device_does_at_best_stands_beside_its_datasheet(report):
    text = Text(report).text
    assert "5.37 GB/s" in text
    assert "1.11 TFLOP/s" in text
    assert "2.00 TFLOP/s" in text
    assert "not stated" in text


def test_memory_and_other_timers_stand_beside_what_they_check(report):
    text = Text(report).text
    assert "Peaks of one step, by phase" in text
    assert "40.0" in text  # MiB, as the heading of its column says
    assert "blocked_autorange" in text
    assert "On cpu the predicted peak of 1 step was off by 0.10 % in the median and 0.10 % at worst." in text
    assert "of 3 cells on cpu 1 was left out as too large and 1 was tried all the same beyond the border" in text
    assert "can judge 2 decisions, of which 2 were right; 0 cells were wrongly said to fit" in text
    assert "1.02" in text
