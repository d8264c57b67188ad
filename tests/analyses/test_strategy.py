"""How the model is cut: what MindSpore's parallel strategy says, rank by rank."""

import polars as pl

import tiny
from stepscope.model.trace import Meta, Trace


def test_pieces_are_the_shards_of_the_input_with_the_most_and_roles_are_those_of_inserted_operators() -> None:
    operators = [
        {"node": "1", "name": "a", "type": "MatMul", "scope": "Default/a", "shards": "[[2, 1], [1, 4]]", "inputs": '["w"]', "instance": ""},
        {
            "node": "2",
            "name": "b",
            "type": "AllGather",
            "scope": "Default/b",
            "shards": None,
            "inputs": '["1"]',
            "instance": "redistribution_op",
        },
        {"node": "3", "name": "c", "type": "Add", "scope": "recompute_Default/c", "shards": "[[1, 1]]", "inputs": "[]", "instance": ""},
    ]
    stage = {"rank": 4, "stage": 1, "mode": "auto_parallel", "devices": '["4", "5"]'}
    trace = Trace({"sharded_operators": pl.DataFrame([stage | operator for operator in operators])}, Meta(ranks=[4]))
    rows = """
    rank stage name part      pieces role           devices
    4    1     a    forward   4      -              "[""4"",_""5""]"
    4    1     b    forward   -      redistribution "[""4"",_""5""]"
    4    1     c    recompute 1      -              "[""4"",_""5""]"
    """
    tiny.assert_rows(trace.strategy().drop("devices"), rows.replace(" devices", "").replace('"[""4"",_""5""]"', ""))
    assert trace.strategy()["devices"].unique().to_list() == ['["4", "5"]']
    assert trace.strategy(sharded=True)["name"].to_list() == ["a", "b"]
    assert trace.of_rank(4).strategy().height == 3


def test_without_a_strategy_there_are_no_rows() -> None:
    assert Trace({}).strategy().is_empty()
