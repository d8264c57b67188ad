from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.errors import UsageError

# A step from 0 to 200: forward from 60, backward from 100 to 125, the optimizer from 160 to 190.
SPANS = """
    track  kind        name                                    start_ns  dur_ns  step
    0      step        ProfilerStep#0                          0         200     0
    0      op          aten::conv2d                            60        10      0
    1      op          autograd::engine::evaluate_function:_A  100       10      0
    1      op          autograd::engine::evaluate_function:_B  115       10      0
    0      annotation  Optimizer.step#SGD.step                 160       30      0
"""
STEPS = """
    step  start_ns  end_ns
    0     0         200
"""


def test_the_category_of_a_block_follows_from_its_lifetime_and_the_passes_of_its_step() -> None:
    trace = tiny.trace(
        spans=SPANS,
        steps=STEPS,
        allocations="""
            device   address  bytes  alloc_ns  free_ns  category
            "gpu_0"  1        1      62        120      -
            "gpu_0"  2        2      64        66       -
            "gpu_0"  3        4      110       210      -
            "gpu_0"  4        8      112       113      -
            "gpu_0"  5        16     165       -        -
            "gpu_0"  6        32     166       170      -
            "gpu_0"  7        64     -         50       -
            "gpu_0"  8        128    205       -        -
            "gpu_0"  9        256    63        64       workspace
            "gpu_0"  10       512    -         -        weights
        """,
        counters="""
            name               at_ns  value  unit
            "allocated_gpu_0"  50     700    bytes
        """,
    )
    found = trace.memory_by_category()
    # Of the 700 bytes there after the oldest block went, 512 have a name: the other 188 do not.
    assert found["category"].unique(maintain_order=True).to_list() == [
        "static", "before", "optimizer state", "gradient", "activation", "temporary", "weights", "workspace",
    ]  # fmt: skip
    at = {moment: dict(rows.select("category", "bytes").iter_rows()) for (moment,), rows in found.group_by("at_ns")}
    assert {name: held for name, held in at[64].items() if held} == {"static": 188, "activation": 1, "temporary": 2, "weights": 512}
    assert at[63]["workspace"] == 256 and at[50]["before"] == 0
    assert (at[112]["gradient"], at[112]["activation"], at[112]["temporary"]) == (4, 1, 8)
    assert (at[166]["optimizer state"], at[166]["temporary"], at[166]["gradient"]) == (16, 32, 4)
    assert (at[210]["gradient"], at[210]["temporary"]) == (0, 128)


def test_without_steps_lifetimes_give_no_category() -> None:
    trace = tiny.trace(
        allocations="""
            device  address  bytes  alloc_ns  free_ns
            cpu     1        5      10        20
            cpu     2        7      -         15
        """
    )
    tiny.assert_rows(
        trace.memory_by_category(),
        """
        rank  device  at_ns  category   bytes
        0     cpu     10     before     7
        0     cpu     10     temporary  5
        0     cpu     15     before     0
        0     cpu     15     temporary  5
        0     cpu     20     before     0
        0     cpu     20     temporary  0
        """,
    )
    assert trace.memory_by_category(start_ns=12, end_ns=15)["at_ns"].unique().to_list() == [15]
    assert tiny.trace().memory_by_category().is_empty()
    with pytest.raises(UsageError, match="pixels is 0"):
        trace.memory_by_category(pixels=0)


def test_categories_add_up_to_the_allocated_bytes_and_pixels_keep_the_peak(shared: Path) -> None:
    trace = stepscope.open(shared / "torch_h200" / "gpt2_full.json.gz")
    found = trace.memory_by_category(device="gpu 0")
    # The allocator's own count after the last event of each moment.
    counted = trace.memory(device="gpu 0").group_by("at_ns").agg(pl.col("allocated_bytes").last())
    both = found.group_by("at_ns").agg(pl.col("bytes").sum()).join(counted, on="at_ns", how="full")
    assert both.height > 7000
    assert both.filter(pl.col("bytes").ne_missing(pl.col("allocated_bytes"))).is_empty()
    thin = trace.memory_by_category(device="gpu 0", pixels=100)
    sums = thin.group_by("at_ns").agg(pl.col("bytes").sum())
    assert sums.height <= 200
    assert sums["bytes"].max() == counted["allocated_bytes"].max()
    # 124 million parameters of four bytes each, as blocks of the allocator: at the end of a backward pass each has its gradient.
    assert found.filter(category="gradient")["bytes"].max() == pytest.approx(124_475_904 * 4, rel=0.03)


def test_a_recorded_training_has_a_gradient_for_each_parameter_and_keeps_what_backward_needs() -> None:
    found = stepscope.open(Path(__file__).parents[1] / "samples" / "chrome" / "torch-2.13.0" / "cpu_training.json.gz").memory_by_category()
    most = dict(found.group_by("category").agg(pl.col("bytes").max()).iter_rows())
    # tests/samples/record_torch.py: a convolution of 4 x 3 x 3 weights and 4 biases, a linear layer of 144 x 10 and 10, four bytes each.
    assert most["gradient"] == (4 * 3 * 3 + 4 + 144 * 10 + 10) * 4
    # A batch of 8 pictures of 8 x 8 and their labels; what ReLU and log-softmax gave; the loss, its weight and the gradient to begin with.
    assert most["activation"] == 8 * 8 * 8 * 4 + 8 * 8 + 8 * 4 * 6 * 6 * 4 + 8 * 10 * 4 + 3 * 4
