"""Each rule of the audit fires on a fault made for it and says nothing of a sound table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.audit_cases import CASES
from tests.audit_rows import Rows, grid, modes, optimizers, rows, treated
from workflow_scripts.lib.audit.findings import Finding
from workflow_scripts.lib.audit.frames import with_labels
from workflow_scripts.lib.audit.registry import RULES, rules_table


def found(name: str, table: Rows) -> list[Finding]:
    return RULES[name](with_labels(pd.DataFrame(table)))


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.scope == "table"])
def test_rule_fires_on_its_fault_and_on_nothing_sound(name: str):
    case = CASES[name]
    findings = [f for f in found(name, case.faulty) if case.subject in f.subject and f.severity == case.severity]
    assert findings, found(name, case.faulty)
    assert all(f.rule == name and f.message and f.advice for f in findings)
    assert found(name, case.sound) == []


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.needs])
def test_rule_says_what_it_lacks(name: str):
    needed = {column for entry in RULES[name].needs for column in entry.split("|")}
    table = [{key: value for key, value in row.items() if key not in needed} for row in CASES[name].faulty]
    applies = {entry.split("|")[0]: None for entry in RULES[name].applies}
    (finding,) = found(name, [{**applies, **row} for row in table])
    assert (finding.severity, finding.message.split(":")[0]) == ("note", "cannot be checked")


def test_tables_of_one_document_must_agree():
    one = with_labels(pd.DataFrame(modes(forward=0.0315))).assign(model="small")
    other = with_labels(pd.DataFrame(modes(forward=0.0405))).assign(model="small")
    assert [f.rule for f in RULES["tables_disagree"]({"one": one, "other": other})] == ["tables_disagree"]
    assert RULES["tables_disagree"]({"one": one, "other": one}) == []


def test_no_rule_minds_an_empty_table():
    for rule in RULES.values():
        if rule.scope == "table":
            columns = [name for entry in (*rule.applies, *rule.needs, "label") for name in entry.split("|")]
            assert rule(pd.DataFrame(columns=list(dict.fromkeys(columns)))) == []


def test_cold_start_recovers_the_first_step_and_n():
    samples = np.array([0.44, *[0.0315] * 9])
    table = rows(
        {"warmup_steps": 0, "step_time_mean_s": samples.mean(), "step_time_std_s": samples.std()},
        {"warmup_steps": 1, "step_time_mean_s": 0.0315, "step_time_std_s": 1e-5},
        model="a",
    )
    (finding,) = found("cold_start", table)
    assert finding.numbers["n_inferred"] == pytest.approx(10)
    assert finding.numbers["first_step_extra_s"] == pytest.approx(0.44 - 0.0315)


def test_independent_halving_and_doubling_is_no_interaction():
    table = grid({"none": (100, 200, 400), "half": (50, 100, 200)})
    (finding,) = found("interaction_ratio", table)
    assert list(finding.numbers.values()) == [1.0, 1.0]
    assert "no interaction" in finding.message


def test_checkpointing_may_leave_the_loss_alone():
    table = treated({"baseline": 1.4374, "checkpointing": 1.4374})
    table[1]["changes_arithmetic"] = False
    table[0]["changes_arithmetic"] = True
    assert found("identical_losses", table) == []


def test_what_an_optimizer_saves_of_a_process_is_bounded_but_for_its_allocators_slack():
    def table(saved):
        rows = optimizers(320e6, 320e6 - saved)
        return [
            {**row, "peak_process_bytes": row["peak_allocated_bytes"], "peak_allocated_bytes": None} for row in rows
        ]

    assert found("saving_bounded", table(8e6 + 20e6)) == []
    assert len(found("saving_bounded", table(8e6 + 40e6))) == 1


def test_what_an_optimizer_saves_on_a_device_is_bounded_but_for_whole_blocks():
    """SGD in AdamW's place, 10,745,088 parameters on an H200: 85,960,704 bytes of state, 87,422,464 were saved."""

    def table(saved):
        return [{**row, "n_params": 10_745_088} for row in optimizers(2_832_388_608, 2_832_388_608 - saved)]

    assert found("saving_bounded", table(87_422_464)) == []
    assert len(found("saving_bounded", table(440_000_000))) == 1


def test_rules_are_documented_as_they_are():
    assert Path("resources/audit_rules.md").read_text(encoding="utf-8").endswith("\n\n" + rules_table())
