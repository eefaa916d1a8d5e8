"""Figures of a running query that belong to no stage: calls to models, counters and gauges, memory, and GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cost.accounts import Account, ModelUse
from penstock.events.events import GpuUse, Measures, ModelSample
from penstock.events.metrics import Metrics

if TYPE_CHECKING:
    from penstock.ai.client.limits.limiter import LimiterState

PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")


def measuring(account: Account, metrics: Metrics, gpu_uses: Callable[[], tuple[GpuUse, ...]]) -> Callable[[], Measures]:
    """Return a function that measures a query. If several queries share the account, its figures cover all of them."""
    refused_before = {name: state.refused for name, state in _limiter_states().items()}

    def measure() -> Measures:
        limiters = _limiter_states() if account.models else {}
        return Measures(
            tuple(_sample(use, limiters, refused_before) for use in account.models),
            tuple(metrics.counters.items()),
            tuple(metrics.gauges.items()),
            _rss_bytes(),
            gpu_uses(),
            tuple((path, *why) for path, why in metrics.skipped_files.items()),
        )

    return measure


def _sample(
    use: ModelUse, limiters: Mapping[tuple[str, str], LimiterState], refused_before: Mapping[tuple[str, str], int]
) -> ModelSample:
    name = use.provider, use.model
    tokens = use.input_tokens, use.output_tokens
    sample = ModelSample(*name, use.num_calls, use.num_cached, use.num_retried, *tokens, use.dollars)
    if (state := limiters.get(name)) is None:
        return sample
    num_refused = max(state.refused - refused_before.get(name, 0), 0)
    return replace(
        sample,
        num_refused=num_refused,
        num_in_flight=state.in_flight,
        num_waiting=state.waiting,
        num_allowed=state.limit,
        max_allowed=state.ceiling,
        rate_limit=state.rate_limit,
    )


def _limiter_states() -> Mapping[tuple[str, str], LimiterState]:
    """Return the limiters of this process, without loading the module of a query that has none."""
    module = sys.modules.get("penstock.ai.client.limits.limiter")
    return {} if module is None else module.limiter_states()


def _rss_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_NBYTES
    return 0
