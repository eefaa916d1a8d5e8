"""Expressions whose parts are shared or that are very deep cost no more than their distinct nodes."""

from __future__ import annotations

import pickle
import subprocess
import sys

import penstock as ps
from penstock.expr.column import Expression, col
from penstock.expr.expression_text import MAX_TEXT, describe
from penstock.expr.nodes import bottom_up, walk

LEVELS = 40


def doubled(value: Expression) -> Expression:
    for _ in range(LEVELS):
        value = value + value
    return value


def test_a_select_of_shared_parts() -> None:
    assert ps.range(3).select(doubled(col("id"))).to_pydict() == {"id": [0, 2**LEVELS, 2 * 2**LEVELS]}


def test_a_condition_of_shared_parts() -> None:
    condition = col("id") > 1
    for _ in range(LEVELS):
        condition = (condition | condition) & condition
    assert ps.range(4).where(condition).to_pydict() == {"id": [2, 3]}


def test_equal_expressions_built_apart() -> None:
    left, right = doubled(col("id"))._node, doubled(col("id"))._node
    assert left == right
    assert hash(left) == hash(right)
    assert left != doubled(col("other"))._node


def test_a_shared_node_is_visited_once() -> None:
    node = doubled(col("id"))._node
    assert len(list(walk(node))) == len(bottom_up(node)) == LEVELS + 1


def test_a_description_is_short() -> None:
    assert len(describe(doubled(col("id"))._node)) <= MAX_TEXT


def test_a_deep_expression() -> None:
    value = col("id")
    for number in range(2000):
        value = value + number
    assert ps.range(2).select(value).to_pydict() == {"id": [1999000, 1999001]}
    assert ps.range(2).where(value > 1999000).to_pydict() == {"id": [1]}
    assert describe(value._node).endswith("+ 1998) + 1999")
    assert pickle.loads(pickle.dumps(value._node)) == value._node


def test_the_hash_does_not_travel() -> None:
    node = (col("id") + 1)._node
    hash(node)
    code = (
        "import pickle, sys; from penstock.expr.column import col; node = pickle.load(sys.stdin.buffer); "
        "assert hash(node) == hash((col('id') + 1)._node) and node == (col('id') + 1)._node"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(node), check=True)


def test_constants_of_any_type_can_be_pickled() -> None:
    for value in (1, None, "x", [1, None], ps.File("a.txt"), [ps.File("a.txt")], {"a": ps.File("a.txt")}):
        node = (ps.lit(value).is_null() | col("x"))._node
        assert pickle.loads(pickle.dumps(node)) == node
