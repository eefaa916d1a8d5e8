"""Lower a logical plan to stages. Steps that can run on a batch one after another share a stage."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from penstock.expr.nodes import columns_of, has_udf
from penstock.expr.udf import BatchSpec, Builtin, Resources, UdfSpec
from penstock.plan import nodes, stages
from penstock.plan.filters import arrow_filter, to_condition
from penstock.plan.nodes import Plan, UdfProject, fold_plan
from penstock.plan.relations import Relation
from penstock.plan.stage_names import is_picking, with_names
from penstock.plan.substitution import conjuncts
from penstock.protocols import OneWriterSink, ReadRequest
from penstock.types import DataType

ASYNC_CALLS_PER_TASK = 8
"""Rows of a task per concurrent call. A task then lasts about as long as eight calls: results come soon, and the
overhead of a task is small."""
MIN_ASYNC_ROWS = 128
ASYNC_BATCH_ROWS = 1024
CACHED_BATCH_ROWS = 256
"""Rows of a batch whose result is cached. A size found by measurement differs in each run, and so would the keys."""
MAX_BATCH_ROWS = 2**20
PREPARED_ROWS = 1024  # rows of a task whose results are all cached: it is quick, and no slow row delays the others
WRITTEN_NBYTES = 2**20  # for a writer at once: a small result becomes one file, in input order
SPLIT_NBYTES = 16 * 2**20  # for a writer that splits rows among many files

_WHOLE = stages.Whole()
_DEFAULT = Resources()


def lower(
    plan: Plan, *, is_ordered: bool, parts: stages.Gathered | None = None, batch_rows: int | None = None
) -> tuple[stages.Stage, ...]:
    """Return the stages of a plan whose UDF calls are split. Each comes after its inputs; the last one gives the rows.

    With ``is_ordered`` the rows come in input order. Otherwise they come as they are done, and only stages whose result
    depends on the order get their input in order. With ``parts`` a write makes parts of that size that can be committed
    one by one, and a read does nothing but read, so that each row of a part can be traced to its source. With
    ``batch_rows`` the reader cuts the rows into batches of that size, and gets whole batches.
    """
    lowering = _Stages(parts)
    last = fold_plan(plan, _with_final_inputs, lowering.add)
    if batch_rows is not None:
        lowering.gather_batches(last, batch_rows)
    return with_names(_with_order(lowering.built, is_ordered))


class _Stages:
    """The stages so far. Each has at most one reader, so more steps can be added to the last stage of a branch."""

    def __init__(self, parts: stages.Gathered | None) -> None:
        self.built: list[stages.Stage] = []
        self._parts = parts

    def add(self, plan: Plan, sources: list[int]) -> int:
        """Add a node's stages after the stages of its inputs. Return the index of the stage that gives its rows."""
        source = sources[0] if sources else -1
        match plan:
            case nodes.Scan():
                return self._scan(plan)
            case nodes.Project(_, exprs):
                assert not plan.has_udf, "split_udf_calls comes before lower"
                return self._step(source, stages.Select(exprs))
            case nodes.Filter(_, predicate):
                assert not has_udf(predicate), "split_udf_calls comes before lower"
                return self._step(source, stages.Where(predicate))
            case nodes.Explode(_, columns):
                return self._step(source, stages.ExplodeLists(columns))
            case nodes.Unpivot(_, ids, values, variable_name, value_name):
                return self._step(source, stages.Melt(ids, values, variable_name, value_name))
            case nodes.MonotonicId(_, column):
                return self._add(stages.Transform((stages.NumberRows(column),)), source)
            case nodes.Sample(_, fraction, seed, is_with_replacement):
                step = stages.TakeSample(fraction, seed, is_with_replacement)
                return self._add(stages.Transform((step,)), source, inbox=stages.Exactly(stages.SAMPLED_ROWS))
            case nodes.UdfProject(_, call, column, keep):
                return self._call(stages.CallUdf(call, column, keep), source)
            case nodes.MapBatches(_, spec):
                return self._call(stages.CallBatch(spec), source)
            case nodes.Limit(_, num_rows, offset):
                return self._add(None, source, inbox=stages.Cut(num_rows, offset))
            case nodes.IntoBatches(_, size):
                return self._add(stages.Transform(()), source, inbox=stages.Exactly(size))
            case nodes.Repartition(_, num_partitions):
                return self._add(stages.Transform(()), source, inbox=stages.Evenly(num_partitions))
            case nodes.Concat():
                return self._add(None, *sources)
            case nodes.Relate(inputs, relation):
                return self._relate(inputs, relation, sources)
            case nodes.Write(_, sink):
                is_split = isinstance(sink, OneWriterSink) and sink.needs_one_writer
                gathered = self._parts or stages.Gathered(SPLIT_NBYTES if is_split else WRITTEN_NBYTES)
                return self._add(stages.WriteOut(sink, self._parts is not None), source, inbox=gathered)
        raise AssertionError(f"no stage for {type(plan).__name__}")

    def gather_batches(self, source: int, batch_rows: int) -> None:
        """Add a stage that gives the reader whole batches, several at a time."""
        self._add(stages.Transform(()), source, inbox=stages.Exactly(batch_rows, is_cut_later=True))

    def _scan(self, scan: nodes.Scan) -> int:
        schema = scan.source.schema()
        parts = [] if scan.predicate is None else [to_condition(part, schema) for part in conjuncts(scan.predicate)]
        conditions = tuple(part for part in parts if part is not None)
        assert len(conditions) == len(parts), "pushdown_filter leaves to a source what it can check"
        predicate = arrow_filter(conditions, schema)
        # The limit counts rows that pass the predicate; a source that counts rows before it would give too few.
        limit = scan.limit if predicate is None else None
        request = ReadRequest(scan.columns, predicate, limit, conditions)
        read = self._add(stages.Read(scan.source, request, schema=scan.schema))
        return read if scan.limit is None else self._add(None, read, inbox=stages.Cut(scan.limit, 0))

    def _relate(self, inputs: tuple[Plan, ...], relation: Relation, sources: Sequence[int]) -> int:
        """Add a relation. Its right input comes first, so that the left one can stream through it."""
        work = stages.RunRelation(relation, tuple(plan.schema for plan in inputs))
        sides = [self._step(source, stages.MarkSide(side)) for side, source in enumerate(sources)]
        return self._add(work, *reversed(sides))

    def _add(
        self, work: stages.Work | None, *inputs: int, inbox: stages.Inbox = _WHOLE, resources: Resources = _DEFAULT
    ) -> int:
        self.built.append(stages.Stage("", work, inputs, inbox, resources))
        return len(self.built) - 1

    def _call(self, work: stages.CallUdf | stages.CallBatch, source: int) -> int:
        inbox = _batching(work.spec)
        is_free = isinstance(inbox, stages.Measured) or (work.spec.cache and not isinstance(work.spec.batch_size, int))
        if is_free and _is_into_batches(self.built[source]):
            inbox = _WHOLE  # into_batches has set the batch size
        return self._add(work, source, inbox=inbox, resources=work.spec.resources)

    def _step(self, source: int, step: stages.Step) -> int:
        """Add a step to the stage that makes the rows, or a stage of its own if it should have separate workers."""
        stage = self.built[source]
        match stage.work:
            case stages.Read() if self._parts is not None:
                return self._add(stages.Transform((step,)), source)
            case stages.Read(steps=steps) | stages.Transform(steps=steps):
                work: stages.Work = replace(stage.work, steps=(*steps, step))
            case stages.CallUdf(steps=steps) | stages.CallBatch(steps=steps) if is_picking(step):
                work = replace(stage.work, steps=(*steps, step))
            case _:
                return self._add(stages.Transform((step,)), source)
        self.built[source] = replace(stage, work=work)
        return source


def _with_final_inputs(plan: Plan) -> Plan:
    """Return the node with nested concats flattened, and with the columns that identify a row in its errors."""
    match plan:
        case nodes.UdfProject():
            return plan.with_child(with_error_columns(plan))
        case nodes.Concat():
            return nodes.Concat(tuple(_branches(plan)))
        case _:
            return plan


def _branches(plan: Plan) -> list[Plan]:
    """Return the inputs of a concat, with nested concats flattened."""
    if not isinstance(plan, nodes.Concat):
        return [plan]
    return [branch for child in plan.inputs for branch in _branches(child)]


def _batching(spec: UdfSpec | BatchSpec) -> stages.Inbox:
    """Return the inbox policy of a function: the user's batch size, else one that suits its kind."""
    is_batch = spec.target.is_batch
    if isinstance(spec.batch_size, int):
        return stages.Exactly(spec.batch_size, is_cut_later=_is_cut_by_worker(spec))
    if spec.batch_size == "paced":
        return stages.Paced()
    if is_batch and spec.batch_size == "auto" and spec.cache:
        return stages.Exactly(CACHED_BATCH_ROWS)
    if is_batch and spec.batch_size == "auto":
        builtin = spec.builtin if isinstance(spec, UdfSpec) else Builtin()
        max_rows = ASYNC_BATCH_ROWS if spec.target.is_async else builtin.max_rows or MAX_BATCH_ROWS
        return stages.Measured(max_rows, builtin.first_rows)
    if spec.target.is_async and (is_batch or isinstance(spec, BatchSpec)):
        return stages.AtMost(ASYNC_BATCH_ROWS)
    if isinstance(spec, UdfSpec) and spec.target.is_async:
        quick_rows = PREPARED_ROWS if spec.builtin.has_lookup else None
        return stages.AtMost(_async_rows(spec), spec.builtin.task_nbytes, quick_rows)
    return _WHOLE if is_batch else stages.Paced()


def _is_cut_by_worker(spec: UdfSpec | BatchSpec) -> bool:
    """Return True for a batch function in a process, unless its results are cached, one for each batch."""
    is_batch_udf = isinstance(spec, UdfSpec) and spec.target.is_batch and not spec.target.is_async
    return is_batch_udf and bool(spec.resources.use_process or spec.resources.gpus) and not spec.cache


def _is_into_batches(stage: stages.Stage) -> bool:
    match stage.inbox, stage.work:
        case (stages.Exactly(), stages.Transform((stages.TakeSample(), *_))):
            return False
        case (stages.Exactly(), stages.Transform()):
            return True
        case _:
            return False


def _async_rows(spec: UdfSpec) -> int:
    if spec.is_streaming:
        return 1  # tasks run at the same time, and each hands on the values of its generator
    if spec.builtin.task_rows is not None:
        return spec.builtin.task_rows
    return max(MIN_ASYNC_ROWS, ASYNC_CALLS_PER_TASK * spec.max_concurrent_calls)


def _with_order(built: Sequence[stages.Stage], is_ordered: bool) -> tuple[stages.Stage, ...]:
    """Return the stages, marked as ordered if a stage downstream depends on the order."""
    needed = [is_ordered] * len(built)
    for index in reversed(range(len(built))):
        for source in built[index].inputs:
            is_kept = needed[index] and not isinstance(built[index].work, stages.RunRelation)
            needed[source] = is_kept or _depends_on_order(built[index])
    return tuple(replace(stage, is_ordered=flag) for stage, flag in zip(built, needed, strict=True))


def _depends_on_order(stage: stages.Stage) -> bool:
    match stage.inbox, stage.work:
        case (stages.Cut() | stages.Evenly(), _):
            return True
        case (stages.Exactly(), stages.CallUdf() | stages.CallBatch() as work) if work.spec.cache:
            return True
        case (_, stages.Transform((stages.NumberRows() | stages.TakeSample(seed=int()), *_))):
            return True
        case (_, stages.RunRelation(relation)):
            return relation.needs_order
        case _ if _is_into_batches(stage):
            return True
        case _:
            return False


# --- columns that identify a row in its errors ---


def with_error_columns(plan: UdfProject) -> Plan:
    """Return the input of a call. If failed rows are recorded, add the columns that its arguments came from.

    UdfProject(UdfProject(x, download(path) as t, keep=[]), decode_image(t) as i, keep=[])
        ->  the inner one with keep=[path], which the outer one drops

    The bytes of a file do not identify the file. Only text and numbers are carried along.
    """
    if plan.keep is None or plan.call.udf.policy.on_error == "raise":
        return plan.child
    return _carrying(plan.child, columns_of(plan.call))


def _carrying(plan: Plan, columns: Set[str]) -> Plan:
    if not isinstance(plan, UdfProject) or plan.keep is None or plan.column not in columns:
        return plan
    child = _carrying(plan.child, columns_of(plan.call))
    if child.schema is None or plan.child.schema is None:
        return plan
    origins = columns_of(plan.call) | (set(child.schema.names) - set(plan.child.schema.names))
    left_out = origins - {plan.column, *plan.keep}
    carried = [field.name for field in child.schema if field.name in left_out and _is_short(field.dtype)]
    return replace(plan, child=child, keep=(*plan.keep, *carried))


def _is_short(dtype: DataType) -> bool:
    return dtype.is_string() or dtype.is_numeric()
