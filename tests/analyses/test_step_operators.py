import tiny

SPANS = """
    kind           name    step  start_ns  dur_ns
    op             mm      1     10        5
    op             add     2     105       20
    op             mm      2     110       5
    annotation     phase   2     101       90
    op             mm      2     150       5
    api            launch  2     151       1
    python         f.py    2     151       1
    op             mm      -     250       5
"""
STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
"""


def test_names_of_the_last_step_in_order_of_their_first_start() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, steps=STEPS).step_operators(),
        """
        rank  step  name   kind        calls  start_ns  end_ns  offset_ns  end_offset_ns
        0     2     phase  annotation  1      101       191     1          91
        0     2     add    op          1      105       125     5          25
        0     2     mm     op          2      110       155     10         55
        """,
    )


def test_another_step_can_be_asked_for() -> None:
    tiny.assert_rows(
        tiny.trace(spans=SPANS, steps=STEPS).step_operators(step=1),
        """
        step  name  calls  offset_ns  end_offset_ns
        1     mm    1      10         15
        """,
    )
