from __future__ import annotations

import pytest

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col
from penstock.expr.nodes import ELEMENT, ColumnRef, ListApply, PythonValue, Star, UdfCall, Unnest
from penstock.plan.nodes import Filter, Limit, Plan, Project, UdfProject
from penstock.plan.rules.split_udf_calls import split_udf_calls
from penstock.types import DataType
from tests.plan.sources import (
    DOUBLE,
    a,
    b,
    call,
    count_to,
    double,
    is_odd,
    l,
    node,
    s,
    scan,
    select,
    tell,
    udf,
    unknown,
    with_columns,
)

t0, t1 = col("__udf_0"), col("__udf_1")


def added(child: Plan, value: Expression, column: str, *keep: str) -> UdfProject:
    udf_call = node(value)
    assert isinstance(udf_call, UdfCall)
    return UdfProject(child, udf_call, column, None if child.schema is None else keep)


@pytest.mark.parametrize(
    "plan",
    [
        scan(),
        select(scan(), a + 1),
        Filter(scan(), node(a > 1)),
        Limit(select(scan(), double(a)), 1),  # a rule looks at one node
        added(scan(), double(a), "c", "a"),
    ],
)
def test_nothing_to_split(plan: Plan) -> None:
    assert split_udf_calls(plan) is plan


def test_a_call_inside_an_expression() -> None:
    plan = select(scan(), a, (double(b) + 1).alias("c"))
    assert split_udf_calls(plan) == select(added(scan(), double(b), "__udf_0", "a"), a, (t0 + 1).alias("c"))


def test_an_unnamed_expression_keeps_the_name_of_its_first_column() -> None:
    assert split_udf_calls(select(scan(), double(b) + 1)) == select(
        added(scan(), double(b), "__udf_0"), (t0 + 1).alias("b")
    )


def test_a_new_column_needs_no_select_list() -> None:
    assert split_udf_calls(with_columns(scan("a", "b"), c=double(a))) == added(scan("a", "b"), double(a), "c", "a", "b")


def test_a_replaced_column_keeps_its_place() -> None:
    plan = with_columns(scan("a", "b"), a=double(a))
    assert split_udf_calls(plan) == select(added(scan("a", "b"), double(a), "a", "b"), a, b)


def test_the_final_name_waits_while_the_input_column_is_read() -> None:
    plan = select(scan("a", "b"), double(b).alias("a"), (a + 1).alias("c"))
    chain = added(scan("a", "b"), double(b), "__udf_0", "a")
    assert split_udf_calls(plan) == select(chain, t0.alias("a"), (a + 1).alias("c"))


def test_the_final_name_waits_while_a_later_call_reads_the_input_column() -> None:
    plan = select(scan("a", "b"), double(b).alias("a"), double(a).alias("b"))
    first = added(scan("a", "b"), double(b), "__udf_0", "a")
    assert split_udf_calls(plan) == select(added(first, double(a), "b", "__udf_0"), t0.alias("a"), b)


def test_equal_calls_are_made_once() -> None:
    plan = select(scan(), double(a).alias("x"), double(a).alias("y"), (double(a) + 1).alias("z"))
    x = col("x")
    assert split_udf_calls(plan) == select(added(scan(), double(a), "x"), x, x.alias("y"), (x + 1).alias("z"))


def test_calls_that_differ_in_a_python_value_are_both_made() -> None:
    given = [Expression(UdfCall(DOUBLE, (PythonValue(value),))) for value in ("x", "y")]
    plan = split_udf_calls(select(scan(), given[0].alias("x"), given[1].alias("y")))
    assert isinstance(plan, UdfProject)
    assert isinstance(plan.child, UdfProject)


def test_a_call_on_the_result_of_a_call() -> None:
    plan = select(scan(), double(double(a) + 1).alias("c"))
    inner = added(scan(), double(a), "__udf_0")
    assert split_udf_calls(plan) == added(inner, double(t0 + 1), "c")


def test_a_shared_inner_call() -> None:
    plan = select(scan(), double(a).alias("x"), double(double(a)).alias("y"))
    assert split_udf_calls(plan) == added(added(scan(), double(a), "x"), double(col("x")), "y", "x")


def test_each_call_keeps_only_what_is_read_later() -> None:
    plan = select(scan(), a, (double(b) + double(s.is_null())).alias("c"))
    first = added(scan(), double(b), "__udf_0", "a", "s")
    second = added(first, double(s.is_null()), "__udf_1", "a", "__udf_0")
    assert split_udf_calls(plan) == select(second, a, (t0 + t1).alias("c"))


def test_a_call_below_list_map() -> None:
    numbers = udf(lambda x: [x], DataType.list(DataType.int64()))
    body = node(Expression(ELEMENT) + 1)
    plan = select(scan(), ListApply(node(call(numbers, a)), body, "map"))
    split = split_udf_calls(plan)
    assert isinstance(split, Project)
    assert split.child == added(scan(), call(numbers, a), "__udf_0")
    assert split.schema == plan.schema


def test_temporary_names_do_not_clash() -> None:
    child = select(scan(), a.alias("__udf_0"))
    split = split_udf_calls(select(child, (double(t0) + t0).alias("c")))
    assert split == select(added(child, double(t0), "__udf_1", "__udf_0"), (t1 + t0).alias("c"))


def test_a_filter_gives_the_columns_it_was_given() -> None:
    plan = Filter(scan("a", "b"), node(is_odd(a) & (b > 1)))
    chain = added(scan("a", "b"), is_odd(a), "__udf_0", "a", "b")
    assert split_udf_calls(plan) == select(Filter(chain, node(t0 & (b > 1))), a, b)


def test_a_filter_over_unknown_columns() -> None:
    child = unknown(scan())
    expected = select(Filter(added(child, is_odd(a), "__udf_0"), node(t0)), Star(exclude=("__udf_0",)))
    assert split_udf_calls(Filter(child, node(is_odd(a)))) == expected


def test_a_star_over_unknown_columns_leaves_out_what_was_added() -> None:
    child = unknown(scan())
    expected = select(added(child, double(a), "__udf_0"), Star(exclude=("__udf_0",)), t0.alias("c"))
    assert split_udf_calls(select(child, Star(), double(a).alias("c"))) == expected


def test_a_column_that_the_star_leaves_out_is_replaced() -> None:
    child = unknown(scan())
    expected = select(added(child, double(a), "a"), Star(exclude=("a",)), a)
    assert split_udf_calls(select(child, Star(exclude=("a",)), double(a).alias("a"))) == expected


def test_unnest_of_a_call_calls_once() -> None:
    pair = udf(lambda x: {"p": x, "q": x}, DataType.struct({"p": DataType.int64(), "q": DataType.int64()}))
    plan = select(scan(), a, Unnest(node(call(pair, a))))
    split = split_udf_calls(plan)
    assert isinstance(split, Project)
    assert split.child == added(scan(), call(pair, a), "__udf_0", "a")
    assert split.schema == plan.schema


def test_a_generator_runs_after_the_calls_that_do_not_read_it() -> None:
    plan = select(scan(), count_to(a).alias("n"), double(b).alias("c"), double(count_to(a)).alias("d"))
    split = split_udf_calls(plan)
    chain = added(added(added(scan(), double(b), "c", "a"), count_to(a), "n", "c"), double(col("n")), "d", "c", "n")
    assert split == Project(chain, (ColumnRef("n"), ColumnRef("c"), ColumnRef("d")))


def test_two_generators_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"only one generator.* _count_to\(col\(a\)\) and _count_to"):
        split_udf_calls(select(scan(), count_to(a).alias("x"), count_to(b).alias("y")))


def test_a_generator_cannot_filter() -> None:
    with pytest.raises(InvalidArgumentError, match="gives several rows"):
        split_udf_calls(Filter(scan(), node(count_to(a) > 1)))


def test_several_arguments() -> None:
    assert split_udf_calls(select(scan(), tell(a, l.is_null()).alias("c"))) == added(scan(), tell(a, l.is_null()), "c")
