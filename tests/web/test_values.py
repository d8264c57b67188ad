"""Values of analyses that the pages show as text have a translation: the section `values` of the strings."""

import ast
import json
import re
from pathlib import Path

from stepscope.model.devices import chips

ROOT = Path(__file__).parents[2]
VALUES = json.loads((ROOT / "frontend/src/strings/zh.json").read_text("utf-8"))["values"]
ITEMS = re.compile("; |: |, ")  # a value may be a list: frontend/src/strings.tsx looks up each item
DOCUMENT = re.compile(r".* (data sheet|white ?paper|documentation|product brief)(?: \(AWS\))?")  # as in strings.tsx
PRODUCTS = re.compile(r"[A-Z]\w* .*\d.*|Huawei|DaVinci")


def literals(folder: str) -> set[str]:
    """Texts in the modules of an analysis folder."""
    files = (ROOT / "src/stepscope/analyses" / folder).glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_notes_of_communication_are_translated() -> None:
    notes = {text for text in literals("communication") if text.startswith(("no wait: ", "wait a"))}
    assert len(notes) >= 7
    assert notes <= VALUES.keys()


def test_items_of_peak_sources_are_translated_or_names_of_documents() -> None:
    items = {item for chip in chips.CHIPS for item in ITEMS.split(chip.source)}
    documents = {item: found[1] for item in items if (found := DOCUMENT.fullmatch(item))}
    assert set(documents.values()) <= VALUES.keys()
    assert {item for item in items - VALUES.keys() - documents.keys() if not PRODUCTS.fullmatch(item)} == set()
    precisions = {precision for chip in chips.CHIPS for precision in chip.peak}
    assert {f"no peak for {precision}" for precision in precisions} <= VALUES.keys()
