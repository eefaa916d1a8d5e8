"""One query from plan to rows, the same for every runner: optimize, lower, execute, fetch; or commit."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.cache.ledger.open_ledgers import job_folder
from penstock.config import Config, get_config
from penstock.cost.accounts import current_account
from penstock.engine.executor import Executor, MakePool
from penstock.engine.lineage import Lineage, is_traceable
from penstock.engine.runners.handlers import unpacked_records
from penstock.errors import InvalidArgumentError, WriteError
from penstock.observe.errors import SCHEMA, ErrorLog
from penstock.plan.lower import lower
from penstock.plan.nodes import Plan, Write, called_functions, has_async_call
from penstock.plan.optimizer import RULES, optimize
from penstock.plan.stages import Gathered, Stage
from penstock.protocols import Bundle, ErrorSink, Origin, Priced, Subscriber
from penstock.udf.memo import with_cache_keys

Rules = Sequence[Callable[[Plan], Plan]]


@dataclass(frozen=True, slots=True)
class Workplace:
    """How pools are made where a query runs, and what its stages share there."""

    make_pool: MakePool
    num_cores: int
    memory_bytes: int


class Runner(Protocol):
    """Where queries run: it makes pools for stages, and brings bundles to the user's process."""

    def open(self, config: Config, stages: Sequence[Stage]) -> AbstractContextManager[Workplace]:
        """Return a workplace for these stages that stays valid within the context, and whose end leaves nothing behind.

        What can never run there is refused, before anything is read.
        """
        ...

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        """Return a bundle's rows. May block."""
        ...


def run(
    plan: Plan,
    runner: Runner,
    *,
    is_ordered: bool = True,
    rules: Rules = RULES,
    subscribers: Sequence[Subscriber] = (),
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the plan's rows. Closing the iterator cancels the query and returns once everything is released."""
    check_calls(plan)
    stages = with_cache_keys(lower(optimize(plan, rules), is_ordered=is_ordered))
    with closing(_execute(stages, runner, subscribers)) as bundles:
        for bundle in bundles:
            yield runner.fetch(bundle)


def check_calls(plan: Plan, *, has_ledger: bool = False) -> None:
    """Refuse a query with a budget whose price nobody knows, and one whose answers are to be kept, but nowhere."""
    account = current_account()
    has_budget = account is not None and account.budget is not None
    has_ledger = has_ledger or bool(job_folder() or get_config().cache_dir)
    for spec in called_functions(plan):
        for argument in spec.target.init_args:
            if has_budget and isinstance(argument, Priced):
                argument.check_price()
            if not has_ledger and getattr(argument, "cache", None) is True:
                raise InvalidArgumentError(
                    f"{spec.name} has cache=True, and there is no place to keep answers in; set "
                    'ps.set_config(cache_dir="...") or PENSTOCK_CACHE_DIR, or write with resume=True.'
                )


def write(plan: Write, runner: Runner, *, subscribers: Sequence[Subscriber] = ()) -> pa.Table:
    """Run a write to its commit and return what the sink says of it. If anything fails, nothing is visible."""
    plan.sink.start()
    try:
        log = next((each for each in subscribers if isinstance(each, ErrorLog)), None)
        if log is None:
            log = ErrorLog()
            subscribers = [*subscribers, log]
        with closing(run(plan, runner, is_ordered=is_written_in_order(plan), subscribers=subscribers)) as batches:
            records = unpacked_records(batches)
        if log.num_rows and isinstance(plan.sink, ErrorSink):
            plan.sink.keep_errors(pa.RecordBatchReader.from_batches(SCHEMA, log.batches()))
        shown = plan.sink.commit(records)
    except BaseException:
        plan.sink.abort()
        raise
    return _shown(shown, str(getattr(plan.sink, "name", type(plan.sink).__name__)))


def stages_in_parts(plan: Write, parts: Gathered) -> tuple[Stage, ...] | None:
    """Return the stages of a write whose parts can be committed; None where what a row gives depends on the others."""
    check_calls(plan)
    stages = lower(optimize(plan, RULES), is_ordered=is_written_in_order(plan), parts=parts)
    return with_cache_keys(stages) if is_traceable(stages) else None


def write_parts(
    stages: Sequence[Stage], runner: Runner, lineage: Lineage, *, subscribers: Sequence[Subscriber] = ()
) -> Generator[tuple[list[dict[str, Any]], tuple[Origin, ...]], None, None]:
    """Yield the records of each part of a write, as soon as it is complete, and where its rows come from."""
    with closing(_execute(stages, runner, subscribers, lineage)) as bundles:
        for bundle in bundles:
            yield unpacked_records([runner.fetch(bundle)]), bundle.origins


def is_written_in_order(plan: Plan) -> bool:
    """Say whether rows are written in input order, as far as one writer suffices.

    Where calls wait for others, as async ones do, a slow one must not hold up those after it, and rows are written as
    they come.
    """
    return not has_async_call(plan)


def _execute(
    stages: Sequence[Stage], runner: Runner, subscribers: Sequence[Subscriber], lineage: Lineage | None = None
) -> Generator[Bundle, None, None]:
    with runner.open(get_config(), stages) as workplace:
        executor = Executor(
            stages,
            workplace.make_pool,
            memory_bytes=workplace.memory_bytes,
            num_cores=workplace.num_cores,
            subscribers=subscribers,
            lineage=lineage,
        )
        with closing(executor.run()) as bundles:
            yield from bundles


def _shown(given: Any, sink: str) -> pa.Table:
    """Return what a sink's ``commit`` gave as a table. The rows are visible by now, so nothing is undone."""
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
