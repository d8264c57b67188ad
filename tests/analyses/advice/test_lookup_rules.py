"""Tables that are read or updated as a whole for a few rows, and graphs that are walked again."""

import tiny
from advice_rows import finding, rows
from device_steps import Call, step_of

LONG = Call("aten::mm", None, 500_000)
FILL = Call("aten::zero_", None, 40_000, around="aten::embedding_dense_backward")


def test_a_dense_gradient_gains_its_fill_and_three_such_passes_of_the_optimizer() -> None:
    update = Call("aten::_foreach_add_", None, 300_000, around="Optimizer.step#SGD.step")
    row = finding(step_of([LONG, FILL, update]), "sparse_gradient")
    assert (row["gain_ns"], row["culprit"]) == (40_000 + 3 * 40_000, "aten::embedding_dense_backward")


def test_the_optimizer_gains_no_more_than_its_time() -> None:
    update = Call("aten::_foreach_add_", None, 60_000, around="Optimizer.step#SGD.step")
    assert finding(step_of([LONG, FILL, update]), "sparse_gradient")["gain_ns"] == 40_000 + 60_000


def test_a_gradient_that_is_not_filled_is_no_finding() -> None:
    update = Call("aten::_foreach_add_", None, 300_000, around="Optimizer.step#SGD.step")
    assert rows(step_of([LONG, Call("aten::embedding_dense_backward", None, 40_000), update]), "sparse_gradient") == []


def test_a_product_with_one_hot_vectors_gains_vectors_conversion_and_product() -> None:
    calls = [Call("aten::one_hot", None, 30_000), Call("aten::to", None, 20_000), Call("aten::matmul", None, 100_000)]
    row = finding(step_of([LONG, *calls, Call("aten::relu", None, 10_000)]), "one_hot_product")
    assert (row["gain_ns"], row["parameters"]["count"]) == (150_000, 1)
    assert rows(step_of([LONG, calls[0], Call("aten::sum", None, 10_000), calls[2]]), "one_hot_product") == []


def test_functions_of_a_second_backward_pass_gain_their_time() -> None:
    text = """
        kind name            start_ns dur_ns span flow_in
        op   aten::addmm     0        100000 0    -
        op   AddmmBackward0  100000   200000 1    0
        op   AddmmBackward0  300000   150000 2    -
    """
    steps = "step start_ns end_ns\n0 0 500000"
    row = finding(tiny.trace(spans=text, steps=steps).with_meta(framework="pytorch"), "repeated_backward")
    assert (row["gain_ns"], row["culprit"], row["parameters"]["count"]) == (150_000, "AddmmBackward0", 1)
    linked = text.replace("2    -", "2    0")
    assert rows(tiny.trace(spans=linked, steps=steps).with_meta(framework="pytorch"), "repeated_backward") == []


def test_a_batched_product_gains_the_copies_of_its_operands_only() -> None:
    copied = [Call("aten::copy_", None, 80_000, around="aten::bmm"), Call("aten::baddbmm", None, 20_000, around="aten::bmm")]
    row = finding(step_of([LONG, *copied]), "contiguous_copies")
    assert (row["gain_ns"], row["culprit"]) == (80_000, "aten::bmm")


def test_a_norm_that_decomposes_a_matrix_is_named_and_a_sum_of_squares_is_not() -> None:
    norm = Call("aten::_linalg_svd", None, 100_000, around="aten::linalg_matrix_norm")
    row = finding(step_of([LONG, norm]), "host_operator")
    assert (row["gain_ns"], row["culprit"]) == (100_000, "aten::linalg_matrix_norm")
    plain = Call("aten::linalg_vector_norm", None, 100_000, around="aten::linalg_matrix_norm")
    assert rows(step_of([LONG, plain]), "host_operator") == []
