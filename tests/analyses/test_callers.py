import tiny

SPANS = """
    span  track  kind    name                           op_type  op  flow_in  start_ns  dur_ns
    0     0      python  "train.py(30):_main"           -        -   -        0         1000
    1     0      python  "model.py(7):_forward"         -        -   -        10        200
    2     0      python  torch/nn/modules/linear.py(9)  -        -   -        20        150
    3     0      op      linear                         linear   -   -        30        100
    4     0      op      mm                             mm       -   -        40        50
    5     1      kernel  gemm                           mm       4   -        500       25
    6     2      op      MmBackward                     MmBackward  -  3      600       80
    7     2      op      mm                             mm       -   -        610       60
    8     0      op      step                           step     -   -        900       10
    9     3      op      mm                             mm       -   -        950       10
"""
TRACKS = "track kind device\n0 thread -\n1 stream 0\n2 thread -\n3 thread -"


def test_a_call_is_put_down_to_the_innermost_line_that_is_no_library_s_and_the_backward_pass_to_what_it_undoes() -> None:
    rows = tiny.trace(spans=SPANS, tracks=TRACKS).callers()
    got = rows.select("device", "type", "line", "backward", "calls", "total_ns").rows()
    assert got == [
        ("gpu", "mm", "model.py(7): forward", False, 1, 25),
        ("cpu", "linear", "model.py(7): forward", False, 1, 100),
        ("cpu", "MmBackward", "model.py(7): forward", True, 1, 80),
        ("cpu", "mm", "model.py(7): forward", True, 1, 60),
        ("cpu", "mm", "model.py(7): forward", False, 1, 50),
        ("cpu", "step", "train.py(30): main", False, 1, 10),
    ]
    assert rows["stack"][0] == "train.py(30): main\nmodel.py(7): forward\ntorch/nn/modules/linear.py(9)"


def test_calls_are_chosen_as_in_instances() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    assert trace.callers(device="gpu")["type"].to_list() == ["mm"]
    assert trace.callers(kernel="gemm")["total_ns"].to_list() == [25]


def test_a_recording_without_stacks_answers_nothing() -> None:
    assert tiny.trace().callers().height == 0
    assert tiny.trace(spans="kind name start_ns dur_ns\nop f 0 1").callers().height == 0
