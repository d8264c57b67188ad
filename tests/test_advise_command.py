"""`stepscope advise` and `stepscope whatif` in the terminal, and the first finding in `stepscope summary`."""

import csv
import io
import json

import pytest

from stepscope.cli import main
from stepscope.cli.setup.demo import RECORDING


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_advise_names_culprit_gain_and_fix_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "advise", str(RECORDING))
    lines = text.splitlines()
    assert lines[0].startswith("1   GPU is idle 37.0 % of each step, waiting for 839 launches")
    facts = "gain 20.9 ms per step, 35.5 % of the step of 58.9 ms · high severity · medium confidence · then limited by: kernel"
    assert facts in " ".join(text.split())
    assert "torch.compile" in text
    assert "not checked:" in text
    assert len(lines) <= 50 and max(map(len, lines)) <= 100


def test_advise_with_all_has_a_line_per_rule_that_was_not_checked_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "advise", str(RECORDING), "--all")
    assert "garbage_collection: garbage collections" in text
    assert "https://" in text


@pytest.mark.parametrize("format_name", ["json", "csv", "table"])
def test_every_format_has_the_same_findings_in_the_same_order(format_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "advise", str(RECORDING), "--format", format_name)
    if format_name == "json":
        rules = [row["rule"] for row in json.loads(text)["rows"]]
    elif format_name == "csv":
        rules = [row["rule"] for row in csv.DictReader(io.StringIO(text))]
    else:
        rules = [line.split()[2] for line in text.splitlines()[1:2]]
    assert rules[0] == "launch_bound"


def test_steps_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(RECORDING), "--steps", "90:99"]) == 2
    assert "steps 8 to 11" in capsys.readouterr().err


def test_the_summary_shows_the_first_finding_and_the_way_to_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(output(capsys, "summary", str(RECORDING)).split())
    assert "waiting for 839 launches" in text and "The fix gains 20.9 ms per step, 35.5 % of the step of 58.9 ms" in text
    assert "next stepscope advise" in text


def test_whatif_answers_a_change_and_repeated_flags_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    faster = output(capsys, "whatif", str(RECORDING), "--scale", "aten::mm=0.5", "--scale", "aten::addmm=0.5", "--remove", "host")
    assert " less (" in faster.splitlines()[0]
    (row,) = json.loads(output(capsys, "whatif", str(RECORDING), "--infinite-bandwidth", "--format", "json"))["rows"]
    assert row["gain_ns"] == 0  # one rank transfers nothing


def test_whatif_without_changes_has_the_floors_of_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "whatif", str(RECORDING))
    assert "floors: device" in text and "(limits)" in text


def test_whatif_refuses_an_unknown_time_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(RECORDING), "--remove", "gpu"]) == 2
    assert "input_wait, sync, launch_latency" in capsys.readouterr().err
