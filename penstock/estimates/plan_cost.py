"""Run a sample of a query, count its calls, and project them to all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.cost.accounts import Account, accounting
from penstock.cost.prices import prices_date
from penstock.errors import InvalidArgumentError
from penstock.estimates.estimate import PER_ROWS, CostEstimate
from penstock.estimates.extrapolation import Interval, ModelEstimate, project_calls
from penstock.estimates.sample import RowSample, sampled
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.nodes import Plan, called_functions, has_async_call
from penstock.protocols import Priced
from penstock.runners import read_rows


def plan_cost(plan: Plan, sample: Any) -> CostEstimate:
    """Return the estimated cost of a plan; see ``DataFrame.plan_cost``."""
    if isinstance(sample, bool) or not hasattr(sample, "__index__") or int(sample) < 1:
        raise InvalidArgumentError(f"plan_cost: sample={sample!r} must be a whole number of rows, 1 or more.")
    part = sampled(plan, int(sample))
    num_rows = PER_ROWS if part.total_rows is None else part.total_rows
    account = Account(is_sample=True)
    started = time.perf_counter()
    with accounting(account):
        for _ in read_rows(part.plan):
            pass
    models = project_calls(account.calls, part.num_rows, num_rows)
    seconds = _longest([_work(time.perf_counter() - started, part, num_rows), *(model.seconds for model in models)])
    unseen = 0.0
    if not models and any(map(_is_model_call, called_functions(part.plan))) and 0 < part.num_rows < num_rows:
        unseen = min(1.0, 3 / part.num_rows) * num_rows  # "rule of three": the 95 % bound of a share never seen
    notes = _notes(part, account, models, unseen)
    return CostEstimate.of(part.total_rows, part.num_rows, models, seconds, account.dollars, notes, unseen)


def _work(sample_s: float, part: RowSample, num_rows: int) -> Interval:
    """Return the rough time for all rows without a model: between the sample's own time and the same time per row."""
    each_s = 0.0 if has_async_call(part.plan) else sample_s * num_rows / max(part.num_rows, 1)
    return Interval(math.sqrt(sample_s * max(each_s, sample_s)), sample_s, max(each_s, sample_s))


def _is_model_call(spec: UdfSpec | BatchSpec) -> bool:
    return any(isinstance(argument, Priced) for argument in spec.target.init_args)


def _longest(times: Iterable[Interval | None]) -> Interval | None:
    """Return the duration of concurrent work, or None if one of the durations is not known."""
    known = list(times)
    ends = [(each.middle, each.low, each.high) for each in known if each is not None]
    return None if None in known else Interval(*map(max, zip(*ends, strict=True)))


def _notes(part: RowSample, account: Account, models: Sequence[ModelEstimate], unseen: float) -> tuple[str, ...]:
    """Return the notes that a reader of the figures needs."""
    unpriced = [model.model for model in models if model.dollars is None]
    is_first_rows = part.num_rows and not part.is_spread and part.total_rows is None
    has_other_async = any(spec.target.is_async and not _is_model_call(spec) for spec in called_functions(part.plan))
    notes = (
        (not part.num_rows, "There are no rows: no call was made."),
        (is_first_rows, "The sample is the first rows, which may differ from the others."),
        (
            unseen,
            f"Up to {unseen:,.0f} calls may be made, though no row of the sample made one: take a larger sample=.",
        ),
        (has_other_async, "Async functions and downloads are not in the time, nor in the dollars."),
        (part.num_rows == 1, "One row does not show how rows differ: there is no interval."),
        (part.has_fewer_rows, "A limit, a set operation or a cheap judge may make calls needless: this is the most."),
        (
            account.num_cached,
            f"{account.num_cached:,} answers of the sample came from the cache; they count as if paid again.",
        ),
        (
            unpriced,
            f"The price of {', '.join(unpriced)} is not known: give price= in the call, or ps.set_config(prices=...)",
        ),
        (models and not unpriced, f"List prices of {prices_date()}, unless you gave others"),
    )
    return tuple(text for applies, text in notes if applies)
