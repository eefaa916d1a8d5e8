from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.expr.column import col
from penstock.expr.nodes import Expr, UdfCall
from penstock.expr.udf import MAX_ASYNC_ROWS, BatchSpec, Resources, Target, UdfSpec
from penstock.plan.lower import (
    ASYNC_BATCH_ROWS,
    ASYNC_CALLS_PER_TASK,
    MAX_BATCH_ROWS,
    MIN_ASYNC_ROWS,
    WRITTEN_NBYTES,
    lower,
)
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MapBatches,
    MonotonicId,
    Plan,
    Repartition,
    Sample,
    UdfProject,
    Unpivot,
    Write,
)
from penstock.plan.stages import (
    AtMost,
    CallBatch,
    CallUdf,
    Cut,
    Evenly,
    Exactly,
    ExplodeLists,
    Gathered,
    Inbox,
    Measured,
    Melt,
    NumberRows,
    Paced,
    Read,
    Select,
    Stage,
    TakeSample,
    Transform,
    Where,
    Whole,
    WriteOut,
)
from penstock.protocols import ReadRequest
from tests.plan.sources import DOUBLE, EMBED, INT, REPEAT, SOURCE, a, b, double, node, scan, select, udf

c = col("c")
IN_PROCESS = Resources(use_process=True)


class NullSink:
    name = "parquet"


def added(child: Plan, spec: UdfSpec = DOUBLE) -> UdfProject:
    return UdfProject(child, UdfCall(spec, (node(a),)), "c", ("a",))


def exprs(*expressions: Any) -> tuple[Expr, ...]:
    return tuple(node(expression) for expression in expressions)


def lowered(plan: Plan, is_ordered: bool = True) -> tuple[Stage, ...]:
    return lower(plan, is_ordered=is_ordered)


READ = Read(SOURCE, ReadRequest())


def test_a_scan() -> None:
    assert lowered(scan("a")) == (Stage("read table", Read(SOURCE, ReadRequest(columns=("a",)))),)


def test_a_predicate_becomes_an_arrow_expression() -> None:
    (stage,) = lowered(scan(predicate=a > 1))
    assert isinstance(stage.work, Read)
    assert str(stage.work.request.predicate) == "(a > 1)"


def test_a_limited_scan_is_cut() -> None:
    assert lowered(select(scan(limit=5), a)) == (
        Stage("read table", Read(SOURCE, ReadRequest(limit=5))),
        Stage("limit 5", None, (0,), Cut(5, 0)),
        Stage("select a", Transform((Select(exprs(a)),)), (1,)),
    )


def test_a_source_that_filters_is_told_no_limit() -> None:
    read, cut = lowered(scan(predicate=a > 1, limit=5))
    assert isinstance(read.work, Read)
    assert read.work.request.limit is None
    assert cut.inbox == Cut(5, 0)


def test_steps_are_done_where_rows_are_read() -> None:
    plan = Unpivot(Explode(select(Filter(scan(), node(a > 1)), "a", "b", "l"), ("l",)), ("l",), ("a", "b"))
    steps = (
        Where(node(a > 1)),
        Select(exprs("a", "b", "l")),
        ExplodeLists(("l",)),
        Melt(("l",), ("a", "b"), "variable", "value"),
    )
    assert lowered(plan) == (Stage("read table", Read(SOURCE, ReadRequest(), steps)),)


def test_picks_are_done_where_a_function_was_called() -> None:
    picks = exprs(c, a.alias("b"))
    call = node(double(a))
    assert isinstance(call, UdfCall)
    assert lowered(select(added(scan()), *picks)) == (
        Stage("read table", READ),
        Stage("udf _double", CallUdf(call, "c", ("a",), (Select(picks),)), (0,), Paced()),
    )
    assert lowered(select(MapBatches(scan(), REPEAT), *picks))[1:] == (
        Stage("map_batches repeat", CallBatch(REPEAT, (Select(picks),)), (0,), Measured(MAX_BATCH_ROWS)),
    )


def test_work_after_a_function_has_a_stage_of_its_own() -> None:
    plan = Filter(select(added(scan()), c + 1), node(c > 1))
    assert lowered(plan)[2:] == (
        Stage("select c, filter col(c) > 1", Transform((Select(exprs(c + 1)), Where(node(c > 1)))), (1,)),
    )


@pytest.mark.parametrize(
    ("plan", "step", "name", "inbox"),
    [
        (MonotonicId(select(scan(), a + 1), "id"), NumberRows("id"), "number rows as id", Whole()),
        (Sample(select(scan(), a + 1), 0.5, seed=1), TakeSample(0.5, 1, False), "sample 0.5", Exactly(1024)),
    ],
)
def test_what_depends_on_the_position_begins_a_stage(plan: Plan, step: Any, name: str, inbox: Any) -> None:
    assert lowered(select(plan, a)) == (
        Stage("read table", Read(SOURCE, ReadRequest(), (Select(exprs(a + 1)),))),
        Stage(name, Transform((step, Select(exprs(a)))), (0,), inbox),
    )


def test_limits_and_layout() -> None:
    plan = Repartition(IntoBatches(Limit(Limit(scan(), 5, 2), None, 1), 3), 2)
    assert lowered(plan)[1:] == (
        Stage("limit 5 offset 2", None, (0,), Cut(5, 2)),
        Stage("offset 1", None, (1,), Cut(None, 1)),
        Stage("into batches", Transform(()), (2,), Exactly(3)),
        Stage("repartition 2", Transform(()), (3,), Evenly(2)),
    )


def test_concat_joins_branches() -> None:
    plan = Concat((scan(), Concat((select(scan(), "a", "b", "s", "l"), Limit(scan(), 1)))))
    stages = lowered(plan)
    assert [stage.name for stage in stages] == [
        "read table (1)",
        "read table (2)",
        "read table (3)",
        "limit 1",
        "concat",
    ]
    assert stages[-1] == Stage("concat", None, (0, 1, 3))


def test_writing() -> None:
    sink: Any = NullSink()
    assert lowered(Write(scan(), sink))[1] == Stage("write parquet", WriteOut(sink), (0,), Gathered(WRITTEN_NBYTES))


@pytest.mark.parametrize(
    ("spec", "inbox"),
    [
        (DOUBLE, Paced()),
        (udf(len, INT, is_async=True), AtMost(ASYNC_CALLS_PER_TASK * MAX_ASYNC_ROWS)),
        (udf(len, INT, is_async=True, resources=Resources(max_workers=500)), AtMost(ASYNC_CALLS_PER_TASK * 500)),
        (udf(len, INT, is_async=True, resources=Resources(max_workers=1)), AtMost(MIN_ASYNC_ROWS)),
        (udf(len, INT, is_async=True, is_batch=True), Measured(ASYNC_BATCH_ROWS)),
        (udf(len, INT, is_async=True, is_batch=True, batch_size=None), AtMost(ASYNC_BATCH_ROWS)),
        (udf(len, INT, is_batch=True), Measured(MAX_BATCH_ROWS)),
        (udf(len, INT, is_batch=True, batch_size=None), Whole()),
        (udf(len, INT, is_batch=True, batch_size=32), Exactly(32)),
        (udf(len, INT, is_batch=True, batch_size=32, resources=IN_PROCESS), Exactly(32, is_cut_later=True)),
        (udf(len, INT, is_batch=True, batch_size=32, resources=IN_PROCESS, cache=True), Exactly(32)),
    ],
)
def test_how_rows_reach_a_function(spec: UdfSpec, inbox: Inbox) -> None:
    assert lowered(added(scan(), spec))[1].inbox == inbox


@pytest.mark.parametrize(
    ("spec", "inbox"),
    [
        (BatchSpec("f", "map_batches", Target(len, is_batch=True)), Measured(MAX_BATCH_ROWS)),
        (BatchSpec("f", "map_batches", Target(len, is_batch=True, is_async=True)), Measured(ASYNC_BATCH_ROWS)),
        (BatchSpec("f", "map_batches", Target(len, is_batch=True), batch_size=None), Whole()),
        (BatchSpec("f", "map_batches", Target(len, is_batch=True), batch_size=32), Exactly(32)),
        (BatchSpec("f", "map", Target(len)), Paced()),
        (BatchSpec("f", "flat_map", Target(len)), Paced()),
    ],
)
def test_how_rows_reach_a_batch_verb(spec: BatchSpec, inbox: Inbox) -> None:
    assert lowered(MapBatches(scan(), spec))[1].inbox == inbox


def test_batches_that_the_user_has_laid_out_are_left_as_they_are() -> None:
    plan = select(IntoBatches(scan(), 7), a, "b")
    assert lowered(MapBatches(plan, BatchSpec("f", "map_batches", Target(len, is_batch=True))))[2].inbox == Whole()
    assert lowered(MapBatches(plan, BatchSpec("f", "map_batches", Target(len, is_batch=True), batch_size=3)))[
        2
    ].inbox == Exactly(3)
    counted = MapBatches(scan(), BatchSpec("f", "map_batches", Target(len, is_batch=True), batch_size=7))
    assert lowered(added(counted, udf(len, INT, is_batch=True)))[2].inbox == Measured(MAX_BATCH_ROWS)


def test_a_stage_takes_what_its_function_asks_for() -> None:
    assert lowered(added(scan(), EMBED))[1].resources == Resources(gpus=1, max_workers=4)


@pytest.mark.parametrize(
    ("plan", "is_ordered"),
    [
        (added(scan()), [False, False]),
        (added(added(scan(), EMBED)), [False, False, False]),
        (Limit(added(scan()), 5), [True, True, False]),
        (added(Limit(scan(), 5)), [True, False, False]),
        (added(MonotonicId(scan(), "id")), [True, False, False]),
        (Sample(scan(), 0.5, seed=1), [True, False]),
        (Sample(scan(), 0.5), [False, False]),
        (IntoBatches(scan(), 2), [True, False]),
        (Repartition(scan(), 2), [True, False]),
        (Concat((scan(), Limit(scan(), 5))), [False, True, False, False]),
        (Limit(Concat((scan(), scan())), 5), [True, True, True, False]),
    ],
)
def test_order_is_kept_where_it_matters(plan: Plan, is_ordered: list[bool]) -> None:
    assert [stage.is_ordered for stage in lowered(plan, is_ordered=False)] == is_ordered
    assert all(stage.is_ordered for stage in lowered(plan, is_ordered=True))


def test_a_long_name_is_cut() -> None:
    many = select(Limit(scan(), 5), *[(b + n).alias(f"column_{n}") for n in range(30)])
    assert lowered(many)[-1].name == "select column_0, column_1, column_2, ..."


def test_an_unsplit_call_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="split_udf_calls"):
        lowered(select(scan(), double(a)))


def test_stages_can_be_pickled() -> None:
    import pickle

    stages = lowered(select(Filter(scan(), node(a + b > 1)), a))
    (copy,) = pickle.loads(pickle.dumps(stages))
    assert copy.name == stages[0].name
    assert copy.work.source.table.equals(pa.table(SOURCE.table))
