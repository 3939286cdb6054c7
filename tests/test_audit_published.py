"""The audit finds the mistakes of the five published write-ups from their tables, with the numbers.

resources/published/mistakes.yaml lists them: what is wrong, and the rule that says so, of which subject.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from workflow_scripts import audit_published
from workflow_scripts.lib.audit.apply import Audited, audit_document
from workflow_scripts.lib.audit.published import load_documents

PUBLISHED = Path("resources/published")


# Numbers of the finding that shows a mistake, by its id; within 1 % but for TOLERANCES.
NUMBERS: dict[str, dict[str, object]] = {
    "0.1": {"n_samples": 1},
    "0.3": {"off_percent": [0, -20]},
    "0.4": {"gaps_percent": [-20]},
    "0.5": {"ratio_of_listed_float32_peaks": 19.4, "ratio_of_listed_bandwidths": 8.4},
    "0.8": {"n_params": 0.98, "n_params_non_embedding": 1.5, "flops_per_token": 1.21},
    "0.11": {"n_lost": 1},
    "1.1": {"excess": 8.4, "expected_s": 2.13, "flop_per_s": 0.69e12, "flop_per_s_smaller": 5.8e12},
    "1.2": {"stated_high": 12.5e9, "low": 24.4e9},
    "1.3": {"stated_low": 9.5, "stated_high": 12.7},
    "1.4": {"counted": 3406.8e6, "bytes": 13.6e9},
    "1.5": {"low": 2, "high": 2},
    "1.6": {"half_width_s": 0.744},
    "1.7": {"limit_bytes": 16e9},
    "1.8": {"n_rows": 0},
    "1.10": {"n_models": 5},
    "1.11": {"n_modes": 1},
    "1.12": {"n_not_read_back": 2},
    "2.1": {"loss": 1.7, "n_treatments": 4},
    "2.2": {"n_rows": 0},
    "2.3": {"ratio": 1.63, "cv": 0.236},
    "2.4": {"n_wrong": 4, "n_right": 8},
    "2.5": {"change_percent": -0.012, "params_ratio": 3.96},
    "2.6": {"weight_loss": 0.16, "weight_train_s": 0.62, "weight_n_allocations": 0.22,
            "score_low": -3.497, "score_high": -0.962, "reproduced": True,
            "last": "Layers, Reducing Batch Size"},
    "2.7": {"tokens_ratio": 0.5, "time_ratio": 0.787, "time_per_token_ratio": 1.57},
    "2.8": {"n_rows": 0},
    "2.9": {"gaps_percent": [-49.4]},
    "2.10": {"n_rows": 15},
    "3.1": {"cv": 1.69, "first_step_extra_s": 0.408, "n_inferred": 9.9},
    "3.2": {"percent": [129.8, 59.0, 39.5, 19.8]},
    "3.3": {"ratio": 1.29},
    "3.4": {"gaps_ms": [-0.3, 2.5, 29.4]},
    "3.5": {"rate": 124e12},
    "3.6": {"smaller_bytes": 340e6, "larger_bytes": 245e6},
    "3.7": {"smaller_s": 2.34e-3, "larger_s": 1.98e-3},
    "3.8": {"needs_bytes": [4.29e9], "score_matrices_in_the_measured_cell_at_4096": 5.85,
            "GB_at_8192_by_that_measure": 12.6},
    "3.9": {"value": 3 * 2**20, "ratio": 4},
    "3.10": {"given": "fp16", "expected": "fp32"},
    "3.11": {"n_rows": 0},
    "3.12": {"needs_bytes": [3.88e9, 7.99e9, 13.6e9]},
    "3.13": {"ratio": 21},
    "3.14": {"calls_per_layer": 4.33, "linear": 85, "attention": 24},
    "4.1": {"percent": [120.7], "stated_percent": 151},
    "4.2": {"passes_first": 81.6},
    "4.3": {"time_per_token_ratio": 1.74, "reference_tokens_per_s": 341e3, "tokens_per_s": 196e3},
    "4.4": {"percent": [44.2, 93.2, 202.7, 327.0]},
    "4.5": {"percent": [-4.5, -18.3, -6.6, -21.1]},
    "4.6": {"saved_bytes": 0.45e9, "state_bytes": 0.087e9, "bound_bytes": 0.043e9},
    "4.7": {"n_changes": 2},
    "4.8": {"ratio": 1.12, "n_equal": 3},
    "4.9": {"n_rows": 16},
    "4.10": {"Context x2": 0.998, "Layers x2": 1.012, "Embeddings x2": 1.043},
    "4.11": {"fp16_exponent_bits": 5, "bf16_mantissa_bits": 7},
    "4.12": {"n_seeds": 1},
    "4.13": {"low": 0.82, "high": 1.10},
}  # fmt: skip
TOLERANCES = {"2.5": 0.05, "2.6": 0.02, "4.1": 0.001, "4.10": 0.001}
MISTAKES = yaml.safe_load((PUBLISHED / "mistakes.yaml").read_text(encoding="utf-8"))
HOLD = {
    "cpu_optimizations": ["doubling heads was universally better"],
    "attention_and_precision": ["small improvement in memory usage", "8 x 8192 x 8192 x 4 bytes"],
    "interactions": ["reduction in loss (-61%)", "14%", "by 5%", "213%", "68%", "57%", "44% rise",
                     "73%", "most favorable balance"],
}  # fmt: skip


@pytest.fixture(scope="module")
def audits() -> dict[str, Audited]:
    return {document.study: audit_document(document) for document in load_documents(PUBLISHED)}


@pytest.mark.parametrize(("study", "id"), [(study, id) for study, known in MISTAKES.items() for id in known])
def test_mistake_is_found(audits: dict[str, Audited], study: str, id: str):
    rule, subject = MISTAKES[study][id]["rule"], MISTAKES[study][id]["subject"]
    findings = [f for f in audits[study].findings() if f.rule == rule and subject in f.subject]
    assert findings, f"no finding of {rule} about {subject}"
    tolerance = TOLERANCES.get(id, 0.01)
    assert any(
        all(agrees(finding.numbers.get(name), wanted, tolerance) for name, wanted in NUMBERS.get(id, {}).items())
        for finding in findings
    ), [finding.numbers for finding in findings]


def test_no_number_stands_in_the_words_for_a_mistake():
    known = [mistake for mistakes in MISTAKES.values() for mistake in mistakes.values()]
    assert len(known) == 61
    assert not [mistake["what"] for mistake in known if re.search(r"\d", mistake["what"].replace("float32", ""))]
    assert not set(NUMBERS) - {id for mistakes in MISTAKES.values() for id in mistakes}


def agrees(found: object, wanted: object, tolerance: float) -> bool:
    if isinstance(wanted, str | bool):
        return found == wanted
    if found is None:
        return False
    return found == pytest.approx(wanted, rel=tolerance, abs=0.06 if isinstance(wanted, list) else 1e-9)


@pytest.mark.parametrize(("study", "quote"), [(study, quote) for study, quotes in HOLD.items() for quote in quotes])
def test_true_claim_holds(audits: dict[str, Audited], study: str, quote: str):
    verdicts = [verdict for claim, verdict, _ in audits[study].verdicts if quote in claim["quote"]]
    assert [verdict.holds for verdict in verdicts] == ["holds"]


def test_one_quotation_may_hold_two_claims(audits: dict[str, Audited]):
    verdicts = {claim.get("about"): verdict.holds for claim, verdict, _ in audits["interactions"].verdicts}
    assert (verdicts["memory"], verdicts["time"]) == ("holds", "does not hold")


def test_printed_cvs_are_right(audits: dict[str, Audited]):
    assert not [finding for finding in audits["model_sizes"].findings() if finding.rule == "printed_cv"]


def test_rank_flips_under_equal_ranges(audits: dict[str, Audited]):
    (numbers,) = [v.numbers for c, v, _ in audits["cpu_optimizations"].verdicts if c["kind"] == "rank"]
    assert numbers["flips"]["Embeddings, Full Precision Bits"] == [7, 4]
    assert numbers["flips"]["Heads, Reducing Batch Size"] == [4, 8]


def test_interaction_ratios_of_accumulation(audits: dict[str, Audited]):
    found = {f.subject: f.numbers for f in audits["interactions"].findings() if f.rule == "interaction_ratio"}
    memory = found["interactions, runs: Gradient Accumulation: peak reserved memory"]
    time = found["interactions, runs: Gradient Accumulation: training time"]
    assert list(memory.values()) == pytest.approx([0.98, 1.13, 1.31], abs=0.005)
    assert list(time.values()) == pytest.approx([0.86, 0.98, 0.83], abs=0.005)


def test_no_rule_names_a_document():
    sources = [path.read_text() for path in Path("workflow_scripts/lib/audit").glob("*.py")]
    assert not [study for study in MISTAKES if any(f'"{study}' in source for source in sources)]


def test_script_writes_json_and_a_page_on_its_own(tmp_path: Path):
    findings, page = tmp_path / "audit.json", tmp_path / "audit.html"
    audit_published.main(
        tables=sorted(PUBLISHED.glob("*.csv")),
        documents=PUBLISHED / "documents.yaml",
        claims=PUBLISHED / "claims.yaml",
        assumptions=PUBLISHED / "assumptions.yaml",
        mistakes=PUBLISHED / "mistakes.yaml",
        template=Path("report/audit.html.j2"),
        style=Path("report/style.css"),
        findings=findings,
        page=page,
        spec={},
    )
    found = json.loads(findings.read_text(encoding="utf-8"))
    assert [document["study"] for document in found["documents"]] == list(MISTAKES)
    assert found["mistakes"] == {"known": 61, "found": 61, "in_part": 8}
    assert found["counts"]["error"] == sum(document["counts"]["error"] for document in found["documents"])
    html = page.read_text(encoding="utf-8")
    assert "+120.7 %" in html
    assert "8.4×" in html
    assert not re.search(r"(?:src|href)=[\"'](?!#)", html)
    assert "<script" not in html


def test_bad_cell_names_table_and_column(tmp_path: Path):
    for path in PUBLISHED.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    table = tmp_path / "model_sizes.sizes.csv"
    table.write_text(table.read_text().replace("308.03 ms", "308.03 bananas"))
    with pytest.raises(ValueError, match=r"model_sizes\.sizes, step_time_mean_s.*bananas"):
        load_documents(tmp_path)
