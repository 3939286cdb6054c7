"""The audit finds the mistakes of the five published write-ups from their tables, with the numbers.

`CAUGHT` lists them: what is wrong, the rule that says so, of which subject, with which number.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from workflow_scripts import audit_published
from workflow_scripts.lib.audit.apply import Audited, audit_document
from workflow_scripts.lib.audit.published import load_documents

PUBLISHED = Path("resources/published")


class Mistake(NamedTuple):
    """One mistake, and the finding that catches it: a part of its subject, and numbers with a relative tolerance."""

    id: str
    what: str
    rule: str
    subject: str
    numbers: dict[str, object] = {}  # noqa: RUF012 - never changed
    tolerance: float = 0.01


WIDE_VS_DEEP = [
    Mistake("0.1", "one sample called reliable", "few_samples", "wide", {"n_samples": 1}),
    Mistake("0.2", "synchronisation taken on trust", "synchronisation", "all rows"),
    Mistake("0.3", "consistent 20× with 16× in it", "claim_consistent", "consistent ~20x", {"off_percent": [0, -20]}),
    Mistake("0.4", "direction of the speed-up", "claim_order", "deeper network", {"gaps_percent": [-20]}),
    Mistake("0.5", "a ratio of listed peaks taken for theory", "claim_evidence", "matching theoretical",
            {"ratio_of_listed_float32_peaks": 19.4, "ratio_of_listed_bandwidths": 8.4}),
    Mistake("0.6", "two hypotheses, no test between them", "claim_evidence", "both are true"),
    Mistake("0.7", "a slow spell explained without a log", "claim_evidence", "housekeeping"),
    Mistake("0.8", "similar parameters and compute", "matched_on", "wide and deep",
            {"n_params": 0.98, "n_params_non_embedding": 1.5, "flops_per_token": 1.21}),
    Mistake("0.9", "convergence from one run each", "claim_evidence", "converges more quickly"),
    Mistake("0.10", "a model outside the grid", "outside_grid", "wide"),
    Mistake("0.11", "clean data without a repeat, numbers lost", "numbers_lost", "all rows", {"n_lost": 1}),
]  # fmt: skip
MODEL_SIZES = [
    Mistake("1.1", "oversubscribed memory listed as a success", "rate_collapse", "large",
            {"excess": 8.4, "expected_s": 2.13, "flop_per_s": 0.69e12, "flop_per_s_smaller": 5.8e12}),
    Mistake("1.2", "a memory formula that its own data refute", "claim_bounds", "multiplier",
            {"stated_high": 12.5e9, "low": 24.4e9}),
    Mistake("1.3", "activations of 6 to 8 GB", "claim_bounds", "~6-8 GB", {"stated_low": 9.5, "stated_high": 12.7}),
    Mistake("1.4", "2.7B parameters that are 3.4B", "label_against_count", "2.7B",
            {"counted": 3406.8e6, "bytes": 13.6e9}),
    Mistake("1.5", "optimizer state of 2 to 3 copies", "claim_bounds", "2-3x parameters", {"low": 2, "high": 2}),
    Mistake("1.6", "a CV without an interval", "interval_missing", "large", {"half_width_s": 0.744}),
    Mistake("1.7", "a memory limit that is typical", "limit_assumed", "all rows", {"limit_bytes": 16e9}),
    Mistake("1.8", "speed-ups that nobody measured", "claim_evidence", "1.5-2x", {"n_rows": 0}),
    Mistake("1.9", "one process for all called reliable", "claim_evidence", "benchmark_direct"),
    Mistake("1.10", "context and batch cut for big models only", "confounded_axes", "all rows", {"n_models": 5}),
    Mistake("1.11", "phases not timed apart", "phase_sum", "all rows", {"n_modes": 1}),
    Mistake("1.12", "a device that is not read back", "read_back", "all rows", {"n_not_read_back": 2}),
    Mistake("1.13", "causes of variance without evidence", "claim_evidence", "frequency scaling"),
]  # fmt: skip
CPU_OPTIMIZATIONS = [
    Mistake("2.1", "treatments without effect", "identical_losses", "Heads", {"loss": 1.7, "n_treatments": 4}),
    Mistake("2.2", "bf16 equal to fp16", "claim_evidence", "bfloat16", {"n_rows": 0}),
    Mistake("2.3", "noise taken for effects", "noise_floor", "Embeddings", {"ratio": 1.63, "cv": 0.236}),
    Mistake("2.4", "faster across all optimizations", "claim_order", "across all", {"n_wrong": 4, "n_right": 8}),
    Mistake("2.5", "allocations called memory", "memory_flat", "Embeddings, Full",
            {"change_percent": -0.012, "params_ratio": 3.96}, 0.05),
    Mistake("2.6", "an equally weighted rank", "claim_rank", "equally weighted",
            {"weight_loss": 0.16, "weight_train_s": 0.62, "weight_n_allocations": 0.22, "score_low": -3.497,
             "score_high": -0.962, "reproduced": True, "last": "Layers, Reducing Batch Size"}, 0.02),
    Mistake("2.7", "half the tokens", "unequal_tokens", "Embeddings, Reducing",
            {"tokens_ratio": 0.5, "time_ratio": 0.787, "time_per_token_ratio": 1.57}),
    Mistake("2.8", "no baseline row", "baseline_missing", "all rows", {"n_rows": 0}),
    Mistake("2.9", "more layers said to cost parameters", "claim_order", "fewer heads", {"gaps_percent": [-49.4]}),
    Mistake("2.10", "a tracer on during timing", "traced_timing", "all rows", {"n_rows": 15}),
]  # fmt: skip
ATTENTION_AND_PRECISION = [
    Mistake("3.1", "a first step in the mean", "cold_start", "small, forward",
            {"cv": 1.69, "first_step_extra_s": 0.408, "n_inferred": 9.9}),
    Mistake("3.2", "a minor increase of 130 %", "claim_adjective", "Minor", {"percent": [129.8, 59.0, 39.5, 19.8]}),
    Mistake("3.3", "two tables that disagree", "tables_disagree", "small, forward", {"ratio": 1.29}),
    Mistake("3.4", "growth blamed on synchronisation", "launch_bound", "context 128", {"gaps_ms": [-0.3, 2.5, 29.4]}),
    Mistake("3.5", "a forward pass that nobody waited for", "impossible_rate", "width 128, context 4096",
            {"rate": 124e12}),
    Mistake("3.6", "memory left by other cells", "memory_falls", "width 32, context 256",
            {"smaller_bytes": 340e6, "larger_bytes": 245e6}),
    Mistake("3.7", "a cold first cell", "time_falls", "width 16, context 256",
            {"smaller_s": 2.34e-3, "larger_s": 1.98e-3}),
    Mistake("3.8", "an arithmetic that does not explain the failure", "claim_capacity", "2x that",
            {"needs_bytes": [4.29e9], "score_matrices_in_the_measured_cell_at_4096": 5.85,
             "GB_at_8192_by_that_measure": 12.6}),
    Mistake("3.9", "0.75 MiB that are 3", "claim_equation", "0.75 MiB", {"value": 3 * 2**20, "ratio": 4}),
    Mistake("3.10", "dtypes under autocast", "autocast_dtypes", "gradients", {"given": "fp16", "expected": "fp32"}),
    Mistake("3.11", "faster in sizes that did not fit", "claim_evidence", "significantly faster", {"n_rows": 0}),
    Mistake("3.12", "all passes called impossible", "claim_capacity", "Cannot do rest",
            {"needs_bytes": [3.88e9, 7.99e9, 13.6e9]}),
    Mistake("3.13", "equal accuracy regardless", "claim_accuracy", "upscale", {"ratio": 21}),
    Mistake("3.14", "52 calls for 12 layers", "calls_per_layer", "ampere",
            {"calls_per_layer": 4.33, "linear": 85, "attention": 24}),
]  # fmt: skip
INTERACTIONS = [
    Mistake("4.1", "151 % that are 120.7 %", "claim_change", "(time)",
            {"percent": [120.7], "stated_percent": 151}, 0.001),
    Mistake("4.2", "a loss without a split, after 81.6 passes", "many_passes", "all rows", {"passes_first": 81.6}),
    Mistake("4.3", "a quarter of the tokens", "unequal_tokens", "Default, Reduced",
            {"time_per_token_ratio": 1.74, "reference_tokens_per_s": 341e3, "tokens_per_s": 196e3}),
    Mistake("4.4", "a marginal rise of 327 %", "claim_adjective", "marginal", {"percent": [44.2, 93.2, 202.7, 327.0]}),
    Mistake("4.5", "no effect on duration, in another sitting", "claim_adjective", "training duration",
            {"percent": [-4.5, -18.3, -6.6, -21.1]}),
    Mistake("4.6", "more saved than there was", "saving_bounded", "Context x2",
            {"saved_bytes": 0.45e9, "state_bytes": 0.087e9, "bound_bytes": 0.043e9}),
    Mistake("4.7", "several changes under one name", "several_changes", "SGD", {"n_changes": 2}),
    Mistake("4.8", "a gap in one cell only", "lone_gap", "Default: Float 16", {"ratio": 1.12, "n_equal": 3}),
    Mistake("4.9", "float32 undefined", "precision_undefined", "all rows", {"n_rows": 16}),
    Mistake("4.10", "synergy by adding percentages", "interaction_ratio", "Float 16: peak",
            {"Context x2": 0.998, "Layers x2": 1.012, "Embeddings x2": 1.043}, 0.001),
    Mistake("4.11", "precision traded for range", "claim_formats", "precision for range",
            {"fp16_exponent_bits": 5, "bf16_mantissa_bits": 7}),
    Mistake("4.12", "one run each", "few_seeds", "all rows", {"n_seeds": 1}),
    Mistake("4.13", "equal micro-batches out of order", "micro_batch_order", "Gradient Accumulation",
            {"low": 0.82, "high": 1.10}),
]  # fmt: skip
CAUGHT = {
    "wide_vs_deep": WIDE_VS_DEEP,
    "model_sizes": MODEL_SIZES,
    "cpu_optimizations": CPU_OPTIMIZATIONS,
    "attention_and_precision": ATTENTION_AND_PRECISION,
    "interactions": INTERACTIONS,
}
HOLD = {
    "cpu_optimizations": ["doubling heads was universally better"],
    "attention_and_precision": ["small improvement in memory usage", "8 x 8192 x 8192 x 4 bytes"],
    "interactions": ["reduction in loss (-61%)", "14%", "by 5%", "213%", "68%", "57%", "44% rise",
                     "73%", "most favorable balance"],
}  # fmt: skip


@pytest.fixture(scope="module")
def audits() -> dict[str, Audited]:
    return {document.study: audit_document(document) for document in load_documents(PUBLISHED)}


@pytest.mark.parametrize(
    ("study", "mistake"),
    [(study, mistake) for study, mistakes in CAUGHT.items() for mistake in mistakes],
    ids=lambda found: found.id if isinstance(found, Mistake) else found,
)
def test_mistake_is_found(audits: dict[str, Audited], study: str, mistake: Mistake):
    findings = [f for f in audits[study].findings() if f.rule == mistake.rule and mistake.subject in f.subject]
    assert findings, f"{mistake.what}: no finding of {mistake.rule} about {mistake.subject}"
    assert any(
        all(agrees(finding.numbers.get(name), wanted, mistake.tolerance) for name, wanted in mistake.numbers.items())
        for finding in findings
    ), [finding.numbers for finding in findings]


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
    assert not [study for study in CAUGHT if any(f'"{study}' in source for source in sources)]


def test_script_writes_json_and_a_page_on_its_own(tmp_path: Path):
    findings, page = tmp_path / "audit.json", tmp_path / "audit.html"
    audit_published.main(
        tables=sorted(PUBLISHED.glob("*.csv")),
        documents=PUBLISHED / "documents.yaml",
        claims=PUBLISHED / "claims.yaml",
        assumptions=PUBLISHED / "assumptions.yaml",
        template=Path("report/audit.html.j2"),
        style=Path("report/style.css"),
        findings=findings,
        page=page,
        spec={},
    )
    found = json.loads(findings.read_text(encoding="utf-8"))
    assert [document["study"] for document in found["documents"]] == list(CAUGHT)
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
