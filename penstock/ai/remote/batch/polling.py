"""A batch is asked after until it has ended."""

from __future__ import annotations

import asyncio
import logging
import time

from penstock.ai.remote.batch.calls import Batch
from penstock.ai.remote.batch.client import BatchClient
from penstock.ai.remote.batch.decisions import may_pass, next_poll_s
from penstock.ai.remote.batch.service import BatchService, BatchState
from penstock.errors import ProviderError, RequestRefusedError

log = logging.getLogger("penstock.ai")

PATIENCE_S = 3600.0
"""For so long a provider may be out of reach while a batch of it is waited for, beyond what single requests bear."""
TIMES_GONE = 3
"""How often a batch must be said not to be there; one that was just created may not be seen everywhere yet."""


async def ended_state(
    service: BatchService, client: BatchClient, batch: Batch, batch_id: str, poll_interval_s: float
) -> BatchState | None:
    """Return how a batch ended, once it has; None if the provider does not know it."""
    wait_s = poll_interval_s if batch.is_own else 0.0  # one of an earlier run may have ended long ago
    num_gone, last_heard = 0, time.monotonic()
    while True:
        await asyncio.sleep(wait_s)
        share_done: float | None = None
        try:
            state = await service.state(client, batch_id)
        except RequestRefusedError as exc:
            num_gone += 1
            if exc.status != 404:
                raise
            if num_gone >= TIMES_GONE:
                return None
        except ProviderError as exc:
            if not may_pass(exc) or time.monotonic() - last_heard > PATIENCE_S:
                raise
            log.info("batch %s cannot be asked after now, and is waited for: %s", batch_id, exc)
        else:
            if state.is_ended:
                return state
            num_gone, last_heard, share_done = 0, time.monotonic(), state.share_done
        wait_s = next_poll_s(poll_interval_s, time.monotonic() - batch.began, share_done)
