"""Runs a sample of a query, counts what it takes, and projects that to all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.config import get_config
from penstock.cost.accounts import Account, accounting, total
from penstock.cost.estimates.estimate import PER_ROWS, CostEstimate
from penstock.cost.estimates.projecting import NOTHING, ModelEstimate, Range, projected, share_within
from penstock.cost.estimates.sampling import Sampled, sampled, unpaid_parts
from penstock.cost.prices import prices_date
from penstock.engine.runners import run
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.nodes import Plan, SetOperation, called_functions, has_async_call, walk_plan
from penstock.protocols import Priced

ENOUGH_S = 0.25
"""A run that takes so much longer than that of a row alone tells what rows take."""
MOST_ROWS = 1_000_000


def plan_cost(plan: Plan, sample: Any) -> CostEstimate:
    """Return what a plan will cost; see ``DataFrame.plan_cost``."""
    if isinstance(sample, bool) or not hasattr(sample, "__index__") or int(sample) < 1:
        raise InvalidArgumentError(f"plan_cost: sample={sample!r} must be a whole number of rows, 1 or more.")
    part = sampled(plan, int(sample))
    num_rows = PER_ROWS if part.total_rows is None else part.total_rows
    account = Account(keeps_calls=True)
    with accounting(account):
        if has_async_call(part.plan):
            _drain(part.plan)
    models = projected(account.calls, part.num_rows, num_rows)
    work = _sum_of(working_time(each, int(sample), num_rows) for each in unpaid_parts(plan))
    seconds = _longest([work, *(model.seconds for model in models)])
    paid = total(use.dollars for use in account.models)
    unseen = 0.0
    if not models and _asks_models(part.plan) and 0 < part.num_rows < num_rows:
        unseen = share_within(0, part.num_rows)[1] * num_rows
    notes = _notes(part, account, models, unseen)
    return CostEstimate.of(part.total_rows, part.num_rows, models, seconds, paid, notes, unseen)


def _asks_models(plan: Plan) -> bool:
    """Say whether a plan calls models whose calls are counted."""
    return any(map(_is_model_call, called_functions(plan)))


def _is_model_call(spec: UdfSpec | BatchSpec) -> bool:
    return any(isinstance(argument, Priced) for argument in spec.target.init_args)


def _longest(times: Iterable[Range | None]) -> Range | None:
    """Return the time of what goes on beside each other, None where one is not known."""
    known = list(times)
    ends = [(each.middle, each.low, each.high) for each in known if each is not None]
    return None if None in known else Range(*map(max, zip(*ends, strict=True)))


def working_time(plan: Plan, sample: int, num_rows: int) -> Range:
    """Return about how long this machine works on rows, by running more and more of them until that can be told.

    Nothing is paid for that. How long it takes to begin, to load a model for example, is found by a row alone.
    """
    one = sampled(plan, 1)
    if not one.num_rows:
        return NOTHING
    alone_s = _drain(one.plan)
    if alone_s < ENOUGH_S:
        alone_s = _drain(one.plan)  # now that everything is imported
    while True:
        part = sampled(plan, sample)
        rows_s = max(0.0, _drain(part.plan) - alone_s)
        if rows_s >= ENOUGH_S or part.num_rows < sample or sample >= MOST_ROWS:
            break
        sample *= 8
    high = rows_s / part.num_rows * num_rows
    low = high / get_config().thread_count
    return Range(alone_s + math.sqrt(low * high), alone_s + low, alone_s + high)


def _drain(plan: Plan) -> float:
    """Run a plan to its end; return how long that took."""
    started = time.perf_counter()
    for _ in run(plan):
        pass
    return time.perf_counter() - started


def _sum_of(ranges: Iterable[Range]) -> Range:
    return sum(ranges, NOTHING)


def _notes(part: Sampled, account: Account, models: Sequence[ModelEstimate], unseen: float) -> tuple[str, ...]:
    """Return what whoever reads the figures must know."""
    notes = []
    if not part.num_rows:
        notes.append("There are no rows: nothing was asked.")
    elif not part.is_spread and part.total_rows is None:
        notes.append("The sample is of the first rows, which may not be like the others.")
    if unseen:
        notes.append(f"Up to {unseen:,.0f} calls may be made all the same: take a larger sample=.")
    if any(spec.target.is_async and not _is_model_call(spec) for spec in called_functions(part.plan)):
        notes.append("What async functions and downloads take is not in the time, nor in the dollars.")
    if part.num_rows == 1:
        notes.append("One row says nothing of how rows differ: there is no interval.")
    if part.has_late_limit:
        notes.append("A limit after the calls may end the query before all rows are asked about: this is the most.")
    if any(isinstance(node, SetOperation) for node in walk_plan(part.plan)):
        notes.append("Equal rows are joined on the way, of which a sample shows few: this is the most.")
    if account.num_kept:
        notes.append(f"{account.num_kept:,} answers of the sample were kept from before; they count as if paid again.")
    if (per_row := _rows_a_row(part, account)) > 1.5:
        notes.append(f"Each row becomes about {per_row:.3g} on the way; how much that differs is not in the intervals.")
    if unknown := [model.model for model in models if model.dollars is None]:
        notes.append(
            f"No price is known of {', '.join(unknown)}: give price= in the call, or ps.set_config(prices=...)"
        )
    if models and not unknown:
        notes.append(f"List prices of {prices_date()}, unless you gave others")
    return tuple(notes)


def _rows_a_row(part: Sampled, account: Account) -> float:
    """Return how many rows ask one model for each that was sampled."""
    by_model: dict[tuple[str, str], set[Any]] = {}
    for number, call in enumerate(account.calls):
        keys = [(number, each) for each in range(len(call.parts))] if call.parts else [call.row]
        by_model.setdefault((call.provider, call.model), set()).update(keys)
    return max(map(len, by_model.values()), default=0) / max(part.num_rows, 1)
