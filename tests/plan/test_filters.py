"""What Arrow filters while reading is what we would filter after reading, statistics and all."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import penstock.expr.operators  # noqa: F401  # registers the kernels
from penstock.expr.column import Expression, col, lit
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias
from penstock.plan.filters import to_arrow_filter, to_condition
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
    *(i > 1, i > 1, i >= 1, i == 1, i != 1, i <= 1, ~(i == 1), i.is_null(), i.not_null(), ~i.is_null()),
    *(i.is_in([1, 5]), (i == 1) | (s == "y"), ~((i == 1) & (s == "x")), ~((i == 1) | s.is_null())),
    *(u == 1, u > 3, u != 0, u <= lit(pa.scalar(2**63, pa.uint64()))),
    *(f == 1.0, f == 1, f < 1.0, f >= 0, f <= -0.0, f.is_null(), f.not_null(), (f > 0) & (i == 1)),
    *(g == 0.5, g > 1, g <= 0.5),
    *(s == "x", s != "x", s >= "x", s.is_in(["x", "y"]), s > ""),
    *(p, ~p, p == True, p & (i == 1), p | s.not_null()),  # noqa: E712
    *(d == DAY, d > datetime.date(2023, 1, 1)),
]

LEFT_TO_US = [
    *(i > 2**40, i > 1.5, i == i, i + 1 > 2, u > -1, i == lit(None), lit(True)),  # not the column's type
    *(f != 1.0, ~(f == 1.0), ~(f < 2.0), ~((i == 1) | (f > 0)), f.is_in([0.0])),  # NaN, which statistics leave out
    *(g == 0.1, g > 0.1),  # 0.1 is another number in float32
    *(~i.is_in([1, 5]), i.is_in([1, None]), i.is_in([]), p ^ p, s.cast("string") == "x", col("nowhere") > 1),
    *(d > datetime.datetime(2023, 1, 1), (i == 1) & (i + 1 > 2), (i == 1) | (i + 1 > 2)),
]


@pytest.mark.parametrize("predicate", CONVERTED, ids=repr)
def test_arrow_keeps_the_same_rows(predicate: Expression, dataset: ds.Dataset) -> None:
    arrow = to_arrow_filter(node(predicate), SCHEMA)
    assert arrow is not None
    assert repr(dataset.to_table(filter=arrow).to_pylist()) == repr(expected(predicate).to_pylist())


@pytest.mark.parametrize("predicate", LEFT_TO_US, ids=repr)
def test_what_arrow_might_answer_differently(predicate: Expression) -> None:
    assert to_arrow_filter(node(predicate), SCHEMA) is None


LEAVES = st.sampled_from([predicate for predicate in CONVERTED if "~" not in repr(predicate)])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda x: ~x),
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=5,
)


@given(predicate=TREES)
@settings(max_examples=200, deadline=None)
def test_combinations(predicate: Expression, dataset: ds.Dataset) -> None:
    arrow = to_arrow_filter(node(predicate), SCHEMA)
    if arrow is not None:
        assert repr(dataset.to_table(filter=arrow).to_pylist()) == repr(expected(predicate).to_pylist())


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
        (p, None),
        (~(i > 1), None),
        ((i > 1) | (i < 0), None),
        (i > u, None),
        (i > lit(None), None),
    ],
    ids=str,
)
def test_single_comparisons_as_plain_data(predicate: Expression, expected: Condition | None) -> None:
    assert to_condition(node(predicate), SCHEMA) == expected
