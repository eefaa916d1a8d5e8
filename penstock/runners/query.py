"""Run one query from plan to rows on any runner: optimize, lower, execute, then fetch the rows or commit the write."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from penstock.cache.ledger.open_ledgers import job_folder
from penstock.config import Config, get_config
from penstock.contracts import Bundle, Origin
from penstock.cost.accounts import Account, current_account, make_current
from penstock.engine.cancellation import Cancellation
from penstock.engine.executor import Executor, MakePool
from penstock.engine.handlers import unpacked_records
from penstock.engine.lineage import Lineage, is_traceable
from penstock.engine.resources import Cores
from penstock.errors import InvalidArgumentError, WriteError
from penstock.events import call_gate
from penstock.events.metrics import collect_metrics
from penstock.observe.failed_rows import SCHEMA, ErrorLog
from penstock.observe.failure_lines import FailureLog
from penstock.observe.gpus import sampled_gpus
from penstock.plan.cache_keys import with_cache_keys
from penstock.plan.lower import lower
from penstock.plan.nodes import Plan, Write, called_functions, has_async_call, sink_name
from penstock.plan.number_rows import with_row_numbers
from penstock.plan.optimizer import RULES, optimize
from penstock.plan.stages import CallBatch, CallUdf, Gathered, RunRelation, Stage
from penstock.plan.unknown_columns import naming_lines
from penstock.protocols import CachesAnswers, ErrorSink, Priced, Subscriber
from penstock.runners.measuring import measuring
from penstock.runners.placement import this_machine
from penstock.runners.prefetch import prefetched
from penstock.runners.reading import ALL_ROWS, Reading

Rules = Sequence[Callable[[Plan], Plan]]


@dataclass(frozen=True, slots=True)
class Workplace:
    """A place where a query runs: how to make its pools, and the cores and memory that its stages share.

    ``most_task_nbytes`` bounds the input and the output of a task, if machines have less memory than their share.
    """

    make_pool: MakePool
    cores: Cores
    memory_bytes: int
    most_task_nbytes: int | None = None


class Runner(Protocol):
    """A place for queries: this machine or a cluster. The optimizer applies ``rules`` to a query there."""

    @property
    def rules(self) -> Rules: ...

    def open(self, config: Config, stages: Sequence[Stage]) -> AbstractContextManager[Workplace]:
        """Return a workplace for these stages that is valid within the context. Leaving the context releases it.

        Raise InvalidArgumentError, before anything is read, for stages that can never run there.
        """

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        """Return the rows of a bundle in the user's process. May block."""


def rows_for_reader(
    plan: Plan,
    runner: Runner,
    reading: Reading,
    subscribers: Sequence[Subscriber],
    cancellation: Cancellation | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the plan's rows, computed on this thread, or ahead of the reader on another one."""
    start = partial(_computed_rows, plan, runner, reading, subscribers)
    return prefetched(start, reading.num_ahead, cancellation) if reading.num_ahead else start(cancellation)


def _computed_rows(
    plan: Plan,
    runner: Runner,
    reading: Reading,
    subscribers: Sequence[Subscriber],
    cancellation: Cancellation | None,
) -> Generator[pa.RecordBatch, None, None]:
    check_calls(plan)
    optimized = optimize(plan, runner.rules if reading.rules is None else reading.rules)
    stages = _ready(lower(optimized, is_ordered=reading.is_ordered, batch_rows=reading.batch_rows))
    outputs = _stage_outputs(stages, runner, subscribers, reading=reading, cancellation=cancellation)
    with naming_lines(plan), closing(outputs) as bundles:
        for bundle in bundles:
            yield runner.fetch(bundle)


def check_calls(plan: Plan, *, has_ledger: bool = False) -> None:
    """Raise InvalidArgumentError for a call whose price is unknown under a budget, and for a cache without a ledger."""
    account = current_account()
    has_budget = account is not None and account.budget is not None
    has_ledger = has_ledger or bool(job_folder() or get_config().cache_dir)
    for spec in called_functions(plan):
        for argument in spec.target.init_args:
            if has_budget and isinstance(argument, Priced):
                argument.check_price()
            if not has_ledger and isinstance(argument, CachesAnswers) and argument.cache is True:
                raise InvalidArgumentError(
                    f"{spec.name} has cache=True, but there is no ledger to cache its answers in; set "
                    'ps.set_config(cache_dir="...") or PENSTOCK_CACHE_DIR, or write with resume=True.'
                )


def write_and_commit(plan: Write, runner: Runner, *, subscribers: Sequence[Subscriber] = ()) -> pa.Table:
    """Run a write to its commit and return the sink's summary. If anything fails, nothing becomes visible."""
    plan.sink.start()
    try:
        log = next((each for each in subscribers if isinstance(each, ErrorLog)), None)
        if log is None:
            log = ErrorLog()
            subscribers = [*subscribers, log]
        records = written_records(plan, runner, subscribers)
        if log.num_rows and isinstance(plan.sink, ErrorSink):
            plan.sink.keep_errors(pa.RecordBatchReader.from_batches(SCHEMA, log.batches()))
        shown = plan.sink.commit(records)
    except BaseException:
        plan.sink.abort()
        raise
    return _shown(shown, sink_name(plan.sink))


def written_records(plan: Write, runner: Runner, subscribers: Sequence[Subscriber]) -> list[dict[str, Any]]:
    """Write all rows into a sink that has started, and return the records of what its workers wrote."""
    reading = Reading(is_ordered=is_written_in_order(plan))
    with closing(_computed_rows(plan, runner, reading, subscribers, None)) as batches:
        return unpacked_records(batches)


def stages_in_parts(plan: Write, parts: Gathered) -> tuple[Stage, ...] | None:
    """Return the stages of a write that commits its rows part by part; None if a row's result depends on other rows."""
    check_calls(plan)
    stages = lower(optimize(plan, RULES), is_ordered=is_written_in_order(plan), parts=parts)
    return _ready(stages) if is_traceable(stages) else None


def write_parts(
    stages: Sequence[Stage], runner: Runner, lineage: Lineage, *, subscribers: Sequence[Subscriber] = ()
) -> Generator[tuple[list[dict[str, Any]], tuple[Origin, ...]], None, None]:
    """Yield the records of each part of a write as soon as it is complete, with the origins of its rows."""
    with closing(_stage_outputs(stages, runner, subscribers, lineage=lineage)) as bundles:
        for bundle in bundles:
            if bundle.num_rows:
                yield unpacked_records([runner.fetch(bundle)]), bundle.origins


def is_written_in_order(plan: Plan) -> bool:
    """Decide whether rows are written in input order.

    A slow async call must not delay the rows after it, so plans with async calls are written as rows come.
    """
    return not has_async_call(plan)


def _ready(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with what is decided when the query begins: keys of cached results, and row numbers."""
    return with_row_numbers(with_cache_keys(stages))


def _stage_outputs(
    stages: Sequence[Stage],
    runner: Runner,
    subscribers: Sequence[Subscriber],
    *,
    reading: Reading = ALL_ROWS,
    lineage: Lineage | None = None,
    cancellation: Cancellation | None = None,
) -> Generator[Bundle, None, None]:
    """Run the stages on a runner and yield the outputs of the last one."""
    # Workers run in this context: the caller's may change while the query waits for its reader.
    context, account = copy_context(), current_account() or Account(is_exact=False)
    context.run(make_current, account)
    metrics = context.run(collect_metrics)
    gate = call_gate.CallGate()
    context.run(call_gate.make_current, gate)
    with ExitStack() as opened:
        workplace = context.run(opened.enter_context, runner.open(get_config(), stages))
        stages, memory_bytes = with_memory(stages, workplace.memory_bytes)
        gpus = this_machine().gpus if any(stage.resources.gpus for stage in stages) else ()
        gpu_uses = opened.enter_context(sampled_gpus(gpus))
        if logged := {index for index, stage in enumerate(stages) if _logs_failures(stage)}:
            subscribers = [FailureLog(logged), *subscribers]  # before the closing line of the progress
        executor = Executor(
            stages,
            lambda *given: context.run(workplace.make_pool, *given),
            memory_bytes=memory_bytes,
            cores=workplace.cores,
            most_task_nbytes=workplace.most_task_nbytes,
            subscribers=subscribers,
            lineage=lineage,
            cancellation=cancellation,
            gate=gate,
            num_ahead=reading.num_ahead,
            is_read_gradually=reading.is_gradual,
            stall_timeout_s=get_config().stall_timeout,
            measure=measuring(account, metrics, gpu_uses),
        )
        with closing(executor.run()) as bundles:
            yield from bundles


def _logs_failures(stage: Stage) -> bool:
    return isinstance(stage.work, CallUdf | CallBatch) and stage.work.spec.policy.on_error == "log"


def with_memory(stages: Sequence[Stage], memory_bytes: int) -> tuple[Sequence[Stage], int]:
    """Divide half of the memory among the relations; return the stages, and the memory that remains for everything
    else."""
    num_relations = sum(isinstance(stage.work, RunRelation) for stage in stages)
    if not num_relations:
        return stages, memory_bytes
    share = memory_bytes // 2 // num_relations

    def granted(stage: Stage) -> Stage:
        return (
            replace(stage, work=replace(stage.work, memory_bytes=share))
            if isinstance(stage.work, RunRelation)
            else stage
        )

    return tuple(map(granted, stages)), memory_bytes - share * num_relations


def _shown(given: Any, sink: str) -> pa.Table:
    """Return the result of a sink's ``commit`` as a table. The rows are visible by now, so nothing is undone."""
    if given is None:
        return pa.table({})
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if not isinstance(given, pa.Table):
        raise WriteError(
            f"Sink {sink!r} has committed all rows, but its commit() returned {reprlib.repr(given)}; "
            "it must return a pyarrow.Table to show, or None."
        )
    return given
