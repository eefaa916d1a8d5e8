"""Logical plan to stages: what can be done to a batch in one go becomes one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.expr.nodes import Expr, Star, describe, has_udf
from penstock.expr.udf import BatchSpec, Resources, UdfSpec
from penstock.plan.error_columns import with_origins
from penstock.plan.expression_cost import is_trivial
from penstock.plan.filters import to_arrow_filter, to_condition
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MapBatches,
    MonotonicId,
    Plan,
    Project,
    Repartition,
    Sample,
    Scan,
    SetOperation,
    UdfProject,
    Unpivot,
    Write,
    sink_name,
)
from penstock.plan.stages import (
    AtMost,
    CallBatch,
    CallUdf,
    CombineSets,
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
    Step,
    TakeSample,
    Transform,
    Where,
    Whole,
    Work,
    WriteOut,
)
from penstock.plan.substitution import conjuncts
from penstock.protocols import Condition, ReadRequest

ASYNC_CALLS_PER_TASK = 8
"""Rows of a task for each that may wait at once. So a task takes about as long as eight calls one after another,
however many wait: few enough that results come soon, enough that what a task costs by itself is little."""
MIN_ASYNC_ROWS = 128
ASYNC_BATCH_ROWS = 1024
CACHED_BATCH_ROWS = 256
"""Rows of a batch whose result is kept, where the user gives no size: a size found by measurement is another one each
time, and what was kept of another batch is of no use."""
MAX_BATCH_ROWS = 2**20
PREPARED_ROWS = 1024
"""Of a task whose rows' results are known already: a task costs little then, and no slow row holds others up."""

WRITTEN_NBYTES = 2**20
"""Data handed to a writer at once: a small result goes to one writer, so into one file, and in order."""

_WHOLE = Whole()
_DEFAULT = Resources()


def lower(plan: Plan, *, is_ordered: bool, parts: Gathered | None = None) -> tuple[Stage, ...]:
    """Return the stages of a plan whose UDF calls are split, each after those it reads from; the last gives the rows.

    With ``is_ordered`` the rows come in input order. Otherwise they come as they are done, and only the stages whose
    result depends on the order of rows are fed in order. With ``parts`` a write makes parts so large that can each be
    committed, and reads give the rows of their sources as they are, so that it can be told which are in a part.
    """
    stages = _Stages(parts)
    stages.lower(plan)
    return _with_order(stages.built, is_ordered)


class _Stages:
    """The stages so far. Each has one reader at most, so the last one of a branch may still be given more steps."""

    def __init__(self, parts: Gathered | None) -> None:
        self.built: list[Stage] = []
        self._parts = parts

    def lower(self, plan: Plan) -> int:
        """Add what ``plan`` needs and return the number of the stage that gives its rows."""
        match plan:
            case Scan():
                return self._scan(plan)
            case Project(child, exprs):
                assert not plan.has_udf, "split_udf_calls comes before lower"
                return self._step(self.lower(child), Select(exprs))
            case Filter(child, predicate):
                assert not has_udf(predicate), "split_udf_calls comes before lower"
                return self._step(self.lower(child), Where(predicate))
            case Explode(child, columns):
                return self._step(self.lower(child), ExplodeLists(columns))
            case Unpivot(child, ids, values, variable_name, value_name):
                return self._step(self.lower(child), Melt(ids, values, variable_name, value_name))
            case MonotonicId(child, column):
                return self._add(Transform((NumberRows(column),)), self.lower(child))
            case Sample(child, fraction, seed, is_with_replacement):
                return self._add(Transform((TakeSample(fraction, seed, is_with_replacement),)), self.lower(child))
            case UdfProject(_, call, column, keep):
                return self._call(CallUdf(call, column, keep), call.udf, self.lower(with_origins(plan)))
            case MapBatches(child, spec):
                return self._call(CallBatch(spec), spec, self.lower(child))
            case Limit(child, num_rows, offset):
                return self._add(None, self.lower(child), inbox=Cut(num_rows, offset))
            case IntoBatches(child, size):
                return self._add(Transform(()), self.lower(child), inbox=Exactly(size))
            case Repartition(child, num_partitions):
                return self._add(Transform(()), self.lower(child), inbox=Evenly(num_partitions))
            case Concat():
                return self._add(None, *[self.lower(branch) for branch in _branches(plan)])
            case SetOperation(child, verb, side):
                return self._add(CombineSets(verb, side), self.lower(child))
            case Write(child, sink):
                gathered = self._parts or Gathered(WRITTEN_NBYTES)
                return self._add(WriteOut(sink, self._parts is not None), self.lower(child), inbox=gathered)
        raise AssertionError(f"no stage for {type(plan).__name__}")

    def _scan(self, scan: Scan) -> int:
        predicate, conditions = None, tuple[Condition, ...]()
        if scan.predicate is not None:
            schema = scan.source.schema()
            predicate = to_arrow_filter(scan.predicate, schema)
            assert predicate is not None, f"{describe(scan.predicate)} cannot be left to the source"
            parts = [to_condition(part, schema) for part in conjuncts(scan.predicate)]
            conditions = tuple(part for part in parts if part is not None)
        # The limit counts rows that pass the predicate; a source that counts rows before it would give too few.
        limit = scan.limit if predicate is None else None
        request = ReadRequest(scan.columns, predicate, limit, conditions)
        read = self._add(Read(scan.source, request, schema=scan.schema))
        return read if scan.limit is None else self._add(None, read, inbox=Cut(scan.limit, 0))

    def _add(self, work: Work | None, *inputs: int, inbox: Inbox = _WHOLE, resources: Resources = _DEFAULT) -> int:
        stage = Stage("", work, inputs, inbox, resources)
        self.built.append(replace(stage, name=stage_name(stage)))
        return len(self.built) - 1

    def _call(self, work: CallUdf | CallBatch, spec: UdfSpec | BatchSpec, source: int) -> int:
        inbox = _batching(spec)
        if (isinstance(inbox, Measured) or spec.cache) and _is_into_batches(self.built[source]):
            inbox = _WHOLE  # the user has just said how large batches are to be
        return self._add(work, source, inbox=inbox, resources=spec.resources)

    def _step(self, source: int, step: Step) -> int:
        """Do a step where the rows are made, if that is the right place for it; in a stage of its own if not."""
        stage = self.built[source]
        match stage.work:
            case Read() if self._parts is not None:
                return self._add(Transform((step,)), source)
            case Read(steps=steps) | Transform(steps=steps):
                work: Work = replace(stage.work, steps=(*steps, step))
            case CallUdf(steps=steps) | CallBatch(steps=steps) if _is_picking(step):
                work = replace(stage.work, steps=(*steps, step))
            case _:
                return self._add(Transform((step,)), source)
        grown = replace(stage, work=work)
        self.built[source] = replace(grown, name=stage_name(grown))
        return source


def _branches(plan: Plan) -> list[Plan]:
    """Return the inputs of a concat, those of nested concats in their place."""
    if not isinstance(plan, Concat):
        return [plan]
    return [branch for child in plan.inputs for branch in _branches(child)]


def _is_picking(step: Step) -> bool:
    """Say whether a step only picks, orders and renames columns: too little to be worth a stage."""
    return isinstance(step, Select) and all(is_trivial(expr) or isinstance(expr, Star) for expr in step.exprs)


def _batching(spec: UdfSpec | BatchSpec) -> Inbox:
    """Return how rows reach a function: in the size the user gave, else in what suits its kind."""
    is_batch = spec.target.is_batch
    if isinstance(spec.batch_size, int):
        return Exactly(spec.batch_size)
    if spec.batch_size == "paced":
        return Paced()
    if is_batch and spec.batch_size == "auto" and spec.cache:
        return Exactly(CACHED_BATCH_ROWS)
    if is_batch and spec.batch_size == "auto":
        return Measured(ASYNC_BATCH_ROWS if spec.target.is_async else MAX_BATCH_ROWS)
    if spec.target.is_async:
        if isinstance(spec, BatchSpec):
            return AtMost(_async_rows(spec))
        return AtMost(
            _async_rows(spec), spec.builtin.task_nbytes, None if spec.builtin.prepare is None else PREPARED_ROWS
        )
    return _WHOLE if is_batch else Paced()


def _is_into_batches(stage: Stage) -> bool:
    return isinstance(stage.inbox, Exactly) and isinstance(stage.work, Transform)


def _async_rows(spec: UdfSpec | BatchSpec) -> int:
    if isinstance(spec, BatchSpec) or spec.target.is_batch:
        return ASYNC_BATCH_ROWS
    if spec.builtin.task_rows is not None:
        return spec.builtin.task_rows
    return max(MIN_ASYNC_ROWS, ASYNC_CALLS_PER_TASK * spec.max_concurrent_calls)


def _with_order(stages: Sequence[Stage], is_ordered: bool) -> tuple[Stage, ...]:
    """Return the stages with order kept where something downstream depends on it."""
    needed = [is_ordered] * len(stages)
    for index in reversed(range(len(stages))):
        for source in stages[index].inputs:
            needed[source] = needed[index] or _depends_on_order(stages[index])
    return tuple(replace(stage, is_ordered=flag) for stage, flag in zip(stages, needed, strict=True))


def _depends_on_order(stage: Stage) -> bool:
    match stage.inbox, stage.work:
        case (Cut() | Evenly(), _):
            return True
        case (Exactly(), CallUdf(call=call)) if call.udf.cache:
            return True
        case (Exactly(), CallBatch(spec=spec)) if spec.cache:
            return True
        case (_, Transform((NumberRows() | TakeSample(seed=int()), *_))):
            return True
        case _ if _is_into_batches(stage):
            return True
        case _:
            return False


# --- names, for progress and errors ---


def stage_name(stage: Stage) -> str:
    """Return a few words that tell a user which part of the query this is."""
    match stage.work:
        case Read(source):
            return f"read {source.name}"
        case Transform(()):
            return f"repartition {stage.inbox.num_parts}" if isinstance(stage.inbox, Evenly) else "into batches"
        case Transform(steps):
            return _shortened(", ".join(step_name(step) for step in steps))
        case CallUdf(call):
            return f"udf {call.udf.name}"
        case CallBatch(spec):
            return f"{spec.verb} {spec.name}"
        case CombineSets(verb):
            return verb
        case WriteOut(sink):
            return f"write {sink_name(sink)}"
    match stage.inbox:
        case Cut(num_rows, 0):
            return f"limit {num_rows}"
        case Cut(None, offset):
            return f"offset {offset}"
        case Cut(num_rows, offset):
            return f"limit {num_rows} offset {offset}"
        case _:
            return "concat"


def step_name(step: Step) -> str:
    """Return a step in a few words."""
    match step:
        case Select(exprs):
            return f"select {', '.join(_column_name(expr) for expr in exprs)}"
        case Where(predicate):
            return f"filter {describe(predicate)}"
        case ExplodeLists(columns):
            return f"explode {', '.join(columns)}"
        case Melt():
            return "unpivot"
        case TakeSample(fraction):
            return f"sample {fraction}"
        case NumberRows(column):
            return f"number rows as {column}"


def _column_name(expr: Expr) -> str:
    return describe(expr) if isinstance(expr, Star) else expr.name


def _shortened(text: str, width: int = 48) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
