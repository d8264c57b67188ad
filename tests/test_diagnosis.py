"""The diagnosis bench (`benchmarks/diagnosis`): its cases, its table, and a short part of it with real recordings."""

import importlib.util
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from programs import needs
from stepscope.model.trace import analysis_names

BENCH = Path(__file__).parent.parent / "benchmarks" / "diagnosis"
# Their findings do not depend on how busy the machine is.
RECORDED = ("torch/double_precision", "torch/row_loop", "torch/no_workers")


def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagnosis_run", BENCH / "run.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = bench()
CASES = {case.name: case for case in run.load_cases()}


def test_there_are_as_many_cases_as_the_bench_promises() -> None:
    folders = [name.split("/")[0] for name in CASES]
    assert len([folder for folder in folders if folder in ("torch", "ddp", "jax", "mindspore")]) >= 40
    assert folders.count("healthy") >= 10 and folders.count("cuda") >= 15


@pytest.mark.parametrize("name", CASES)
def test_each_case_says_what_is_planted_and_what_is_expected(name: str) -> None:
    case = CASES[name]
    assert case.about.endswith(".") and case.clock in ("cpu", "wall")
    assert bool(case.rules) == bool(case.culprit) == (not case.is_healthy)
    source = case.path.read_text()
    assert ("FIXED" in source) == (not case.is_healthy), "the repaired twin"


def finding(rule: str, **values: Any) -> dict[str, Any]:
    row = {"status": "finding", "severity": "high", "title": "", "culprit": None, "source": None, "gain_ns": None, "gain_share": None}
    return row | {"rule": rule} | values


def test_a_finding_counts_if_its_rule_is_expected_first_and_its_culprit_is_named() -> None:
    case = CASES["torch/full_sort"]  # host_operator, aten::sort
    measured = {"faulty_ns": 10_000_000, "fixed_ns": 4_000_000, "gain_quartiles_ns": [5_000_000, 7_000_000]}
    other = finding("warmup", title="aten::sort")
    right = finding("host_operator", culprit="aten::sort", gain_ns=9_000_000, gain_share=0.45)
    first = run.Judgement(case, findings=(right, other), measured=measured)
    assert (first.is_first, first.is_named, first.position) == (True, True, 1)
    assert first.measured_share == 0.6 and first.share_error == pytest.approx(-0.25) and first.time_error == pytest.approx(0.5)
    second = run.Judgement(case, findings=(other, right), measured=measured)
    assert (second.is_first, second.is_named, second.position) == (False, True, 2)
    unnamed = run.Judgement(case, findings=(finding("host_operator", culprit="aten::mm"),), measured=measured)
    assert (unnamed.is_first, unnamed.is_named, unnamed.position) == (True, False, None)
    page = run.report([first, second], datetime(2026, 11, 18, 20, 45))
    assert "- first finding: 1 of 2 (50 %)" in page and "- culprit named: 2 of 2 (100 %)" in page
    assert "| torch/full_sort |" in page and "9.00 ms, 45 % | 6.00 ms, 60 % (5.00 to 7.00) | -25 % |" in page


@pytest.mark.parametrize("name", RECORDED)
def test_a_planted_fault_is_named_by_the_advice_about_a_real_recording(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("torch")
    if "advice" not in analysis_names():
        pytest.skip("no advice in this version")
    monkeypatch.setattr(run, "DATA", tmp_path)
    assert run.record(CASES[name]) is None
    judgement = run.judge(CASES[name])
    assert not judgement.error and judgement.is_named, [row["title"] for row in judgement.findings]
