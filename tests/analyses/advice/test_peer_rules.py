"""The table of the rules of other tools names rules that exist."""

import re
from pathlib import Path

from stepscope.analyses.advice.rules import rules

DOCS = Path(__file__).parents[3] / "docs" / "advice.md"
_OTHER = {"reshape", "zero_grad", "links"}  # names in the text that are no rules


def test_each_rule_that_the_table_names_exists() -> None:
    table = DOCS.read_text(encoding="utf-8").split("## Rules of other tools")[1].split("\n## ")[0]
    cells = [line.rsplit(" | ", 1)[1] for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    names = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} - _OTHER
    known = {rule.name for rule in rules()}
    assert len(names) > 40
    assert names <= known
