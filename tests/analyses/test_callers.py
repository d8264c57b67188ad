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


def test_a_call_belongs_to_the_innermost_line_outside_libraries_and_a_backward_call_to_its_forward_line() -> None:
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


def test_a_model_of_a_library_counts_as_the_program_and_the_leaf_is_the_innermost_line() -> None:
    spans = """
        span  track  kind    name                                                               op_type  start_ns  dur_ns
        0     0      python  "train.py(30):_main"                                               -        0         1000
        1     0      python  "/opt/lib/python3.11/site-packages/transformers/gpt2.py(7):_attn"  -        10        400
        2     0      python  "torch/nn/modules/module.py(5):_call"                              -        20        190
        3     0      python  "torch/nn/modules/linear.py(9):_forward"                           -        30        150
        4     0      python  "<built-in_function_linear>"                                       -        40        100
        5     0      op      mm                                                                 mm       50        50
        6     0      python  "/opt/lib/python3.11/site-packages/transformers/gpt2.py(8):_mlp"   -        500       100
        7     0      op      mm                                                                 mm       510       30
        8     0      python  "/opt/lib/python3.11/queue.py(9):_get"                             -        700       100
        9     0      op      mm                                                                 mm       710       20
    """
    assert tiny.trace(spans=spans, tracks="track kind\n0 thread").callers().select("line", "leaf", "total_ns").rows() == [
        ("/opt/lib/python3.11/site-packages/transformers/gpt2.py(7): attn", "torch/nn/modules/linear.py(9): forward", 50),
        ("/opt/lib/python3.11/site-packages/transformers/gpt2.py(8): mlp",) * 2 + (30,),
        ("train.py(30): main", "/opt/lib/python3.11/queue.py(9): get", 20),
    ]


def test_calls_are_chosen_as_in_instances() -> None:
    trace = tiny.trace(spans=SPANS, tracks=TRACKS)
    assert trace.callers(device="gpu")["type"].to_list() == ["mm"]
    assert trace.callers(kernel="gemm")["total_ns"].to_list() == [25]


def test_a_recording_without_stacks_answers_nothing() -> None:
    assert tiny.trace().callers().height == 0
    assert tiny.trace(spans="kind name start_ns dur_ns\nop f 0 1").callers().height == 0
