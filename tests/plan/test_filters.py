"""What sources filter while reading is what we would filter after reading, statistics and all."""

from __future__ import annotations

import datetime
import functools
import operator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import penstock.expr.operators  # noqa: F401  # registers the kernels
from penstock.expr.column import Expression, col, lit
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias
from penstock.io.selection import fulfilled
from penstock.plan.filters import arrow_filter, to_condition
from penstock.plan.substitution import conjuncts
from penstock.protocols import Condition
from penstock.types import Schema
from tests.plan.sources import node

NAN, DAY = float("nan"), datetime.date(2024, 1, 1)
TABLE = pa.table(
    {
        "i": pa.array([1, 1, None, None, 5, -3, 2, 2], pa.int32()),
        "u": pa.array([1, 1, 2**63, None, 0, 0, 2**53 + 1, 3], pa.uint64()),
        "f": pa.array([1.0, NAN, None, NAN, 0.0, -0.0, None, 1.0], pa.float64()),
        "g": pa.array([0.1, 0.5, None, NAN, 1.0, 1.0, 2.0, 0.1], pa.float32()),
        "s": pa.array(["x", "x", None, None, "", "y", "x", "z"], pa.string()),
        "p": pa.array([True, True, None, False, None, None, False, False], pa.bool_()),
        "d": pa.array([DAY, None, DAY, None, DAY, DAY, None, None], pa.date32()),
    }
)
SCHEMA = Schema.from_arrow(TABLE.schema)
i, u, f, g, s, p, d = (col(name) for name in TABLE.schema.names)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ds.Dataset:
    """The table as Parquet, two rows to a row group, so that statistics rule many of them out."""
    path: Path = tmp_path_factory.mktemp("filters") / "table.parquet"
    pq.write_table(TABLE, path, row_group_size=2)
    return ds.dataset(path)


def expected(predicate: Expression) -> pa.Table:
    (batch,) = TABLE.to_batches()
    keep = Program([Alias(node(predicate), "keep")], SCHEMA).run(batch).column(0)
    return TABLE.filter(keep)


CONVERTED = [
    *(i > 1, i > 1, i >= 1, i == 1, i != 1, i <= 1, i.is_null(), i.not_null()),
    *(i.is_in([1, 5]), (i == 1) | (i == 5), (i == 2) | i.is_in([1, 5]), (s == "x") | (s == "y") | (s == "")),
    *(u == 1, u > 3, u != 0, u <= lit(pa.scalar(2**63, pa.uint64()))),
    *(f == 1.0, f == 1, f < 1.0, f >= 0, f <= -0.0, f.is_null(), f.not_null(), (f > 0) & (i == 1)),
    *(g == 0.5, g > 1, g <= 0.5),
    *(s == "x", s != "x", s >= "x", s.is_in(["x", "y"]), s > ""),
    *(p, p == True, p & (i == 1)),  # noqa: E712
    *(d == DAY, d > datetime.date(2023, 1, 1)),
]

LEFT_TO_US = [
    *(i > 2**40, i > 1.5, i == i, i + 1 > 2, u > -1, i == lit(None), lit(True)),  # not the column's type
    *(f != 1.0, f.is_in([0.0]), (f == 1.0) | (f == 0.0)),  # NaN, which statistics leave out, and -0.0
    *(g == 0.1, g > 0.1),  # 0.1 is another number in float32
    *(i.is_in([1, None]), i.is_in([]), p ^ p, s.cast("string") == "x"),
    *(~(i == 1), ~i.is_null(), ~p, (i == 1) | (s == "y"), (i == 1) | (i > 4), p | s.not_null()),  # not one comparison
    *(d > datetime.datetime(2023, 1, 1), (i == 1) | (i + 1 > 2)),
]


def conditions(predicate: Expression) -> list[Condition | None]:
    return [to_condition(part, SCHEMA) for part in conjuncts(node(predicate))]


@pytest.mark.parametrize("predicate", CONVERTED, ids=repr)
def test_conditions_keep_the_same_rows(predicate: Expression, dataset: ds.Dataset) -> None:
    found = [each for each in conditions(predicate) if each is not None]
    assert len(found) == len(conditions(predicate))
    arrow = dataset.to_table(filter=arrow_filter(found, SCHEMA))
    (batch,) = TABLE.to_batches()
    ours = TABLE.filter(pc.fill_null(fulfilled(batch, found), False))
    assert repr(arrow.to_pylist()) == repr(ours.to_pylist()) == repr(expected(predicate).to_pylist())


@pytest.mark.parametrize("predicate", LEFT_TO_US, ids=repr)
def test_what_a_source_might_answer_differently(predicate: Expression) -> None:
    assert conditions(predicate) == [None]


def test_a_long_choice_is_left_to_us() -> None:
    either = i == 0
    for number in range(2000):
        either = either | (i == number)
    assert conditions(either) == [None]


@given(predicates=st.lists(st.sampled_from(CONVERTED), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_combinations(predicates: list[Expression], dataset: ds.Dataset) -> None:
    found = [each for predicate in predicates for each in conditions(predicate) if each is not None]
    arrow = dataset.to_table(filter=arrow_filter(found, SCHEMA))
    assert repr(arrow.to_pylist()) == repr(expected(functools.reduce(operator.and_, predicates)).to_pylist())


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (i > 1, Condition("i", ">", 1)),
        (lit(1) < i, Condition("i", ">", 1)),
        (lit(1) == i, Condition("i", "=", 1)),
        (s != "x", Condition("s", "!=", "x")),
        (d <= DAY, Condition("d", "<=", DAY)),
        (s.is_null(), Condition("s", "is null")),
        (s.not_null(), Condition("s", "is not null")),
        (i.is_in([1, 5]), Condition("i", "in", (1, 5))),
        (p, Condition("p", "=", True)),
        ((i == 1) | i.is_in([5]), Condition("i", "in", (1, 5))),
        (~(i > 1), None),
        ((i > 1) | (i < 0), None),
        (i > u, None),
        (i > lit(None), None),
    ],
    ids=str,
)
def test_single_comparisons_as_plain_data(predicate: Expression, expected: Condition | None) -> None:
    assert to_condition(node(predicate), SCHEMA) == expected
