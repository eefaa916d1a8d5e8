from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.expr.column import Expression, col
from penstock.expr.nodes import Star, UdfCall
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MonotonicId,
    Plan,
    Project,
    Sample,
    Scan,
    UdfProject,
    Unpivot,
)
from penstock.plan.optimizer import apply_rule
from penstock.plan.rules.pushdown_projection import pushdown_projection
from tests.plan.sources import TableSource, a, b, count_to, double, node, s, scan, select, unknown

c = col("c")


def added(child: Plan, value: Expression, *keep: str) -> UdfProject:
    udf_call = node(value)
    assert isinstance(udf_call, UdfCall)
    return UdfProject(child, udf_call, "c", keep)


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        Filter(scan(), node(a > 1)),
        select(scan("a", "b"), a + b),
        select(unknown(scan()), a),  # the function sees every column
        Project(unknown(scan()), (Star(),)),
        added(scan("a", "b"), double(a), "b"),
        Unpivot(scan("a", "b"), ("a",), ("b",)),
    ],
)
def test_nothing_to_leave_out(plan: Plan) -> None:
    assert pushdown_projection(plan) is plan


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (select(scan(), a), select(scan("a"), a)),
        (select(scan(), b + a), select(scan("a", "b"), b + a)),
        (select(scan(predicate=s == "x"), a), select(scan("a", predicate=s == "x"), a)),
        (select(Filter(scan(), node(b > 1)), a), select(Filter(scan("a", "b"), node(b > 1)), a)),
        (
            select(Limit(Sample(IntoBatches(scan(), 2), 0.5), 3), a),
            select(Limit(Sample(IntoBatches(scan("a"), 2), 0.5), 3), a),
        ),
        (select(Explode(scan(), ("l",)), a), select(Explode(scan("a", "l"), ("l",)), a)),
        (select(MonotonicId(scan(), "id"), a), select(scan("a"), a)),
        (select(MonotonicId(scan(), "id"), "id"), select(MonotonicId(scan("a"), "id"), "id")),
        (select(select(scan(), a, (b + 1).alias("c")), a), select(select(scan("a"), a), a)),
        (select(select(unknown(scan()), Star()), a), select(select(unknown(scan()), a), a)),
        (select(select(unknown(scan()), Star(("c",)), b.alias("c")), a), select(select(unknown(scan()), a), a)),
        (Project(select(unknown(scan()), Star(("c",)), b.alias("c")), ()), Project(unknown(scan()), ())),
        (select(added(scan(), double(a), "a", "b"), b), select(scan("b"), b)),
        (select(added(scan(), double(a), "a", "b"), c), select(added(scan("a"), double(a)), c)),
        (
            select(added(scan(), double(a), "a", "b"), c, b),
            select(added(scan("a", "b"), double(a), "b"), c, b),
        ),
        (select(added(scan(), count_to(a), "a", "b"), b), select(added(scan("a", "b"), count_to(a), "b"), b)),
        (added(scan(), double(a), "b"), added(scan("a", "b"), double(a), "b")),
        (Unpivot(scan(), ("a",), ("b",)), Unpivot(scan("a", "b"), ("a",), ("b",))),
        (
            select(Unpivot(scan(), ("a", "s"), ("b",)), "value"),
            select(Unpivot(scan("b"), (), ("b",)), "value"),
        ),
        (
            select(Concat((scan(), Filter(scan(), node(b > 1)))), a),
            select(Concat((scan("a"), select(Filter(scan("a", "b"), node(b > 1)), a))), a),
        ),
    ],
)
def test_only_what_is_read(plan: Plan, expected: Plan) -> None:
    assert apply_rule(plan, pushdown_projection) == expected


def test_counting_reads_the_narrowest_column() -> None:
    table = pa.table({"text": ["x"], "number": [1], "flag": [True], "list": [[1]]})
    source = TableSource(table)
    assert pushdown_projection(Project(Scan(source), ())) == Project(Scan(source, columns=("flag",)), ())


def test_counting_computes_as_little_as_it_can() -> None:
    plan = Project(select(scan(), (a + 1).alias("c"), b), ())
    assert pushdown_projection(plan) == Project(select(scan(), b), ())
