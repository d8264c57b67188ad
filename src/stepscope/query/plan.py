"""The columns and rows of each table that a query needs, from DuckDB's syntax tree.

A plan may include too much, never too little: the engine still evaluates the whole query.
"""

import functools
import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import UsageError

_COMPARISONS = {
    "COMPARE_EQUAL": "eq",
    "COMPARE_NOTEQUAL": "ne",
    "COMPARE_LESSTHAN": "lt",
    "COMPARE_LESSTHANOREQUALTO": "le",
    "COMPARE_GREATERTHAN": "gt",
    "COMPARE_GREATERTHANOREQUALTO": "ge",
}
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_MOST_ROWS = 1_000_000  # a LIMIT up to this is applied while a table is read
Node = dict[str, Any]


class Need(msgspec.Struct, frozen=True):
    """The part of one table that a query needs: these columns of the first `rows` that match `where`. None means all.

    With `top`, a column and whether the largest values come first, the first `rows` in its order, and all ties with the last.
    """

    columns: list[str] | None = None
    where: pl.Expr | None = None
    rows: int | None = None
    top: tuple[str, bool] | None = None

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        frame = frame if self.where is None else frame.filter(self.where)
        frame = frame if self.rows is None else frame.head(self.rows) if self.top is None else self._ends(frame)
        if self.columns == []:  # rows are only counted: any column will do, and none is read
            count = frame.select(pl.len()).collect().item()
            return pl.repeat(True, count, dtype=pl.Boolean, eager=True).alias(frame.collect_schema().names()[0]).to_frame().lazy()
        return frame if self.columns is None else frame.select(self.columns)

    def _ends(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        assert self.top is not None and self.rows is not None
        column, largest = pl.col(self.top[0]), self.top[1]
        ends = frame.select(column.top_k(self.rows) if largest else column.bottom_k(self.rows)).collect().to_series().drop_nulls()
        if len(ends) < self.rows or not len(ends):  # rows with null, which come last, are among the first
            return frame
        return frame.filter(column >= ends.min() if largest else column <= ends.max())


class Plan:
    """The tables of one query, and the part of each that it needs."""

    def __init__(self, tree: str) -> None:
        try:
            self._root = msgspec.json.decode(tree)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError("the query is nested too deeply") from error
        self._nodes = list(_nodes(self._root))
        self._tables = [node for node in self._nodes if node.get("type") == "BASE_TABLE"]
        self._with = {_lower(entry.get("key")) for node in self._nodes for entry in (node.get("cte_map") or {}).get("map", [])}
        calls = {_lower(node.get("function_name")) for node in self._nodes if node.get("class") == "FUNCTION"}
        if dynamic := calls & {"query", "query_table"}:
            raise UsageError(f"{min(dynamic)}() takes names of tables as text; write the names of the tables in the query")

    def tables(self, known: Collection[str]) -> tuple[list[str], list[str]]:
        """The known tables that the query reads, and the names of unknown tables that it does not define with WITH."""
        names = dict.fromkeys(_lower(node["table_name"]) for node in self._tables if _lower(node.get("schema_name")) in ("", "main"))
        tables = [name for name in names if name in known and (name not in self._with or self._is_read_in_its_definition(name))]
        return tables, [name for name in names if name not in known and name not in self._with]

    @property
    def lists(self) -> bool:
        """Whether the query lists the tables: SHOW TABLES, information_schema."""
        schemas = {_lower(node.get("schema_name")) for node in self._tables}
        shown = any(node.get("type") == "SHOW_REF" and not node.get("query") for node in self._nodes)
        return shown or bool(schemas & {"information_schema", "pg_catalog"})

    def need(self, table: str, types: Mapping[str, pl.DataType]) -> Need:
        """The part of a table with these columns that must be read."""
        if len(self._tables) == 1 and any(node.get("show_type") == "DESCRIBE" for node in self._nodes):
            return Need(rows=0)
        need = self._rows(table, types)
        columns = None
        if not self._uses_unnamed_columns():
            identifiers = self._identifiers()
            columns = [name for name in types if name.lower() in identifiers]
        return msgspec.structs.replace(need, columns=columns)

    def _is_read_in_its_definition(self, name: str) -> bool:
        """`with spans as (select * from spans where ...)`: inside the definition, the name is that of the table."""
        inner = [
            entry["value"] for node in self._nodes for entry in (node.get("cte_map") or {}).get("map", []) if _lower(entry["key"]) == name
        ]
        return any(_lower(node.get("table_name")) == name for value in inner for node in _nodes(value) if node.get("type") == "BASE_TABLE")

    def _identifiers(self) -> set[str]:
        """Every word of the query that may be a column's name: all but constants."""
        words: set[str] = set()
        for node in self._nodes:
            if "text" not in node and "is_null" not in node:  # as DuckDB 2 and 1 write a constant
                words.update(_lower(value) for value in node.values() if isinstance(value, str))
                for value in node.values():
                    if isinstance(value, list):
                        words.update(_lower(word) for word in value if isinstance(word, str))
        return words

    def _uses_unnamed_columns(self) -> bool:
        """Whether columns matter that are not named: by comparing rows, by position, or as one value.

        A star in the answer needs no rule: without its columns the answer would have other columns, which is checked.
        """
        stars = any(node.get("class") == "STAR" for node in self._nodes)
        return self._uses_rows_as_values() or any(
            node.get("ref_type") == "NATURAL"
            or node.get("type") in ("PIVOT", "SHOW_REF")
            or (stars and (node.get("columns") or node.get("column_name_alias") or node.get("class") == "POSITIONAL_REFERENCE"))
            or (stars and (node.get("type") == "DISTINCT_MODIFIER" or _is_set(node)))
            for node in self._nodes
        )

    def _uses_rows_as_values(self) -> bool:
        """Whether a table is used as a value, `select s from spans s`: a struct of all columns."""
        names = {_lower(node.get(key)) for node in self._nodes if "class" not in node for key in ("alias", "table_name")} | self._with
        aliases = {_lower(node.get("alias")) for node in self._nodes if "class" in node}
        ordering = {id(node) for order in self._nodes if order.get("type") == "ORDER_MODIFIER" for node in _nodes(order)}
        return any(
            (last := _lower(node["column_names"][-1])) in names - {""} and not (id(node) in ordering and last in aliases)
            for node in self._nodes
            if node.get("class") == "COLUMN_REF" and node.get("column_names")
        )

    def _rows(self, table: str, types: Mapping[str, pl.DataType]) -> Need:
        """The condition on the rows of a table that the query reads once, and the number of rows that it takes."""
        uses = [node for node in self._tables if _lower(node["table_name"]) == table]
        if len(uses) != 1 or table in self._with or uses[0].get("sample") or uses[0].get("column_name_alias"):
            return Need()
        select = next((node for node in self._nodes if node.get("from_table") is uses[0]), None)
        if select is None or select.get("sample"):
            return Need()
        owner = {table, _lower(uses[0].get("alias"))}
        condition = select.get("where_clause")
        parts = _conjuncts(condition)
        exprs = [expr for part in parts if (expr := _condition(part, owner, types)) is not None]
        where = functools.reduce(operator.and_, exprs) if exprs else None
        rows = _limit(select) if len(exprs) == len(parts) else None
        orders = [order for modifier in select.get("modifiers") or [] for order in modifier.get("orders", [])]
        # Reading the whole column for the top rows pays off only where no condition on integers excludes most rows.
        values = [_value(node, owner, types) for node in _nodes(condition) if node.get("class") == "COLUMN_REF"]
        ranged = any(value is not None and value[0] == "integer" for value in values)
        top = _top(orders[0], select, owner, types) if orders and not ranged else None
        return Need(None, where, rows if not orders or top else None, top)


def _nodes(root: Any) -> Iterator[Node]:
    """Every object of the tree, without recursion: a query may be nested deeply."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(reversed(node.values()))
        elif isinstance(node, list):
            stack.extend(reversed(node))


def _lower(name: object) -> str:
    return str(name or "").lower()


def _is_set(node: Node) -> bool:
    """UNION, EXCEPT, WITH RECURSIVE."""
    return str(node.get("type")).endswith("_NODE") and node["type"] != "SELECT_NODE"


def _conjuncts(node: Node | None) -> list[Node]:
    if node is None:
        return []
    if node.get("type") == "CONJUNCTION_AND":
        return [part for child in node["children"] for part in _conjuncts(child)]
    return [node]


def _condition(node: Node, owner: set[str], types: Mapping[str, pl.DataType]) -> pl.Expr | None:
    """The condition for Polars; None unless it means exactly the same: comparisons of integers, and equality of texts."""
    kind = node.get("type")
    if (condition := _enum_condition(node, owner, types)) is not None:
        return condition
    if kind in _COMPARISONS:
        left, right = (_value(node[side], owner, types) for side in ("left", "right"))
        if (
            left is None
            or right is None
            or left[0] != right[0]
            or (left[0] == "text" and kind not in ("COMPARE_EQUAL", "COMPARE_NOTEQUAL"))
        ):
            return None
        compared: pl.Expr = getattr(left[1], _COMPARISONS[kind])(right[1])
        return compared
    if kind == "COMPARE_IN":
        values = [_value(child, owner, types) for child in node["children"]]
        if any(value is None or value[0] != values[0][0] for value in values):  # type: ignore[index]
            return None
        first, *others = [value[1] for value in values if value is not None]
        return functools.reduce(operator.or_, [first.eq(other) for other in others]) if others else None
    if kind == "COMPARE_BETWEEN":
        value, low, high = (_value(node[part], owner, types) for part in ("input", "lower", "upper"))
        if value is None or low is None or high is None or {value[0], low[0], high[0]} != {"integer"}:
            return None
        return value[1].is_between(low[1], high[1])
    return None


def _enum_condition(node: Node, owner: set[str], types: Mapping[str, pl.DataType]) -> pl.Expr | None:
    """The condition on an Enum column: compared by code, without a conversion of all rows to text."""
    if node.get("type") not in ("COMPARE_IN", "COMPARE_EQUAL", "COMPARE_NOTEQUAL"):
        return None
    sides: list[Node] = node["children"] if node["type"] == "COMPARE_IN" else [node["left"], node["right"]]
    if _value(sides[0], owner, types) is None:
        return None
    name = _lower(sides[0].get("column_names", [""])[-1])
    column = next((column for column in types if column.lower() == name), "")
    dtype, words = types.get(column), [_constant(side) for side in sides[1:]]
    if not isinstance(dtype, pl.Enum) or not all(isinstance(word, str) and word in dtype.categories for word in words):
        return None
    same = functools.reduce(operator.or_, [pl.col(column) == pl.lit(word, dtype) for word in words])
    return ~same if node["type"] == "COMPARE_NOTEQUAL" else same


def _value(node: Node, owner: set[str], types: Mapping[str, pl.DataType]) -> tuple[str, pl.Expr] | None:
    """A column, a constant or a sum of integers, with its kind: "integer" or "text"."""
    if node.get("class") == "COLUMN_REF":
        *table, name = [_lower(part) for part in node["column_names"]]
        column = next((column for column in types if column.lower() == name), None)
        if column is None or len(table) > 1 or (table and table[0] not in owner):
            return None
        if types[column] in _INTEGERS:
            return "integer", pl.col(column) if types[column] == pl.Int64 else pl.col(column).cast(pl.Int64)
        return ("text", pl.col(column).cast(pl.String)) if isinstance(types[column], _TEXTS) else None
    if node.get("class") == "CONSTANT":
        constant = _constant(node)
        if isinstance(constant, int) and -(1 << 63) <= constant < 1 << 63:
            return "integer", pl.lit(constant, pl.Int64)
        return ("text", pl.lit(constant, pl.String)) if isinstance(constant, str) else None
    if node.get("class") == "FUNCTION" and node.get("function_name") in ("+", "-") and node.get("is_operator"):
        parts = [part.get("expression", part) for part in node.get("arguments") or node.get("children") or []]
        values = [_value(part, owner, types) for part in parts]
        if len(values) != 2 or any(value is None or value[0] != "integer" for value in values):
            return None
        left, right = (value[1] for value in values if value is not None)
        return "integer", left + right if node["function_name"] == "+" else left - right
    return None


def _constant(node: Node) -> int | str | None:
    """An integer or a text as DuckDB 2 and 1 write them; None for anything else."""
    if literal := node.get("literal"):
        text = str(literal.get("text"))
        return (
            int(text)
            if literal.get("kind") == "INTEGER" and text.lstrip("-").isdigit()
            else text
            if literal.get("kind") == "STRING"
            else None
        )
    value = node.get("value") or {}
    kind, content = (value.get("type") or {}).get("id"), value.get("value")
    if kind in ("INTEGER", "BIGINT") and isinstance(content, int):
        return content
    return content if kind == "VARCHAR" and isinstance(content, str) else None


def _limit(select: Node) -> int | None:
    """The number of rows that a query without groups and functions takes."""
    simple = all(
        node.get("class") in ("COLUMN_REF", "CONSTANT") or (node.get("class") == "STAR" and not node.get("columns"))
        for node in select.get("select_list") or [{}]
    )
    others = any(select.get(key) for key in ("group_expressions", "group_sets", "having", "qualify"))
    modifiers = {modifier.get("type"): modifier for modifier in select.get("modifiers") or []}
    if not simple or others or not {"LIMIT_MODIFIER"} <= modifiers.keys() <= {"LIMIT_MODIFIER", "ORDER_MODIFIER"}:
        return None
    limit = modifiers["LIMIT_MODIFIER"]
    if not limit.get("limit") or limit.get("limit_type") not in (None, "ROW_COUNT"):
        return None
    counts = [_constant(limit[key]) if limit.get(key) else 0 for key in ("limit", "offset")]
    if not all(isinstance(count, int) and 0 <= count <= _MOST_ROWS for count in counts):
        return None
    return sum(count for count in counts if isinstance(count, int))


def _top(order: Node, select: Node, owner: set[str], types: Mapping[str, pl.DataType]) -> tuple[str, bool] | None:
    """The integer column that rows are sorted by first, and whether the largest come first."""
    node = order.get("expression") or {}
    value = _value(node, owner, types) if node.get("class") == "COLUMN_REF" else None
    if value is None or value[0] != "integer" or order.get("null_order") not in ("ORDER_DEFAULT", "NULLS LAST"):
        return None
    name = _lower(node["column_names"][-1])
    # In ORDER BY, a name of the answer has priority over that of a column.
    renamed = [
        item for item in select["select_list"] if _lower(item.get("alias")) == name and _lower(*item.get("column_names", [""])[-1:]) != name
    ]
    column = next(column for column in types if column.lower() == name)
    return None if renamed else (column, order.get("type") == "DESCENDING")
