"""Memory of PyTorch's traces belongs to the operator and the module that wanted it, not to the allocator that every operator calls."""

import collections
import gzip
import json

import polars as pl

import stepscope
from conftest import ROOT

RECORDING = ROOT / "tests" / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"
ALLOCATORS = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_")


def test_a_block_is_of_the_innermost_operator_that_is_no_allocator() -> None:
    events = json.loads(gzip.decompress(RECORDING.read_bytes()))["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op" and not event["name"].startswith("nn.Module")]
    expected: collections.Counter[str | None] = collections.Counter()
    for event in events:
        if event["name"] != "[memory]" or event["args"]["Bytes"] < 0:
            continue
        around = [one for one in operators if one["tid"] == event["tid"] and one["ts"] <= event["ts"] <= one["ts"] + one["dur"]]
        inner = [one["name"] for one in sorted(around, key=lambda one: one["dur"])]
        expected[next((name for name in inner if name not in ALLOCATORS), inner[0] if inner else None)] += 1
    blocks = stepscope.open(RECORDING, cache=False).table("allocations").filter(pl.col("alloc_ns").is_not_null()).collect()
    assert collections.Counter(blocks["op"].to_list()) == expected
    assert expected["aten::_foreach_sqrt"] == 42


def test_a_block_has_the_module_that_allocated_it() -> None:
    trace = stepscope.open(RECORDING, cache=False)
    norm = trace.allocations_by_op(by_scope=True).filter(pl.col("op") == "aten::native_layer_norm")
    assert sorted(norm["scope"].to_list()) == ["M_0/Sequential_0/B_0/LayerNorm_0", "M_0/Sequential_0/B_1/LayerNorm_1"]
    assert norm["blocks"].to_list() == [9, 9]
    [whole] = trace.allocations_by_op().filter(pl.col("op") == "aten::native_layer_norm").select("scope", "blocks").rows()
    assert whole == (None, 18)
