"""Calls through a provider's batch API. To its caller a call is like any other; behind it, calls are queued and
submitted together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, TypeVar

import orjson

from penstock.ai.client.api_call import Answered, ApiCall
from penstock.ai.client.batch.batch_queue import BatchQueue, SubmittedBatch, WaitingCall, ended_state, is_transient
from penstock.ai.client.batch.batch_records import NO_ATTEMPTS, BatchRecords
from penstock.ai.client.batch.batch_service import BatchClient, BatchResult, BatchService, BatchState
from penstock.ai.provider import BatchSettings
from penstock.cache.keys import KEY_NBYTES
from penstock.cache.memo import Memo
from penstock.cost.usage import Usage, usage_in
from penstock.errors import (
    InvalidAnswerError,
    OutageError,
    ProviderError,
    ProviderUnavailableError,
    ProviderUnusableError,
    RateLimitedError,
    RequestRefusedError,
    WaitTooLongError,
)
from penstock.events.call_gate import current_gate

log = logging.getLogger("penstock.ai")

Answer = TypeVar("Answer")
CLOSE_TIMEOUT_S = 5.0  # for requests that cancel batches


class BatchCalls(Generic[Answer]):
    """The calls of one model in batches. Used on one event loop.

    ``memo`` stores the answers as soon as they arrive, and records of the batches. Without it, batches end with the
    process. ``read`` is for answers to calls of an earlier run that this process has not made yet.
    """

    def __init__(
        self,
        service: BatchService,
        client: BatchClient,
        settings: BatchSettings,
        read: Callable[[Any, Usage | None], Answer],
        memo: Memo | None,
    ) -> None:
        self._service, self._client, self._read, self._memo = service, client, read, memo
        self._records = None if memo is None else BatchRecords(memo.ledger)
        self._poll_interval_s = settings.poll_interval_s
        self._queue = BatchQueue(service.capacity.lowered(settings.max_requests), settings.poll_interval_s)
        self._calls: dict[bytes, WaitingCall] = {}
        self._arrived: list[WaitingCall] = []  # to be looked up in the records
        self._batches: dict[str, SubmittedBatch] = {}  # batches submitted or being submitted, by token
        self._tokens_read: set[str] = set()  # tokens of batches that have ended
        self._wake = asyncio.Event()
        self._gate = current_gate()
        self._serving: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finishing: set[asyncio.Task[Any]] = set()  # tasks whose batch has ended
        self._num_answers = 0
        self._error: BaseException | None = None
        if memo is None:
            log.info("%s: batches are not recorded; set cache_dir to let another run resume them", client.name)

    async def ask(self, call: ApiCall) -> Answered:
        """Return the answer to a call and the time it took. Calls with equal keys are submitted once."""
        began = time.monotonic()
        if self._error is not None:
            raise self._error
        key = call.key or secrets.token_bytes(KEY_NBYTES)
        if (waiting := self._calls.get(key)) is not None:
            return Answered(await asyncio.shield(waiting.future), time.monotonic() - began)
        body = orjson.dumps(call.body, option=orjson.OPT_SERIALIZE_NUMPY)
        future = asyncio.get_running_loop().create_future()
        waiting = WaitingCall(key, call, body, future, num_answers_before=self._num_answers)
        self._calls[key] = waiting
        self._arrived.append(waiting)
        self._queue.note_arrival(began)
        self._wake.set()
        if self._serving is None:
            self._serving = self._start(self._serve())
        try:
            return Answered(await waiting.future, time.monotonic() - began)
        finally:
            self._calls.pop(key, None)

    def submit_soon(self) -> None:
        """Submit the queued calls without waiting for more, because further calls wait for a batch to end.

        While the answers of a batch are read, further calls do arrive.
        """
        if not self._finishing:
            self._queue.submit_soon()
            self._wake.set()

    async def close(self) -> None:
        """Stop. Running batches continue if another run can resume them, and are cancelled otherwise."""
        nearly_done = set(self._finishing)
        if self._creating is not None and not self._creating.done() and self._records is None:
            nearly_done.add(self._creating)  # to know the id of the batch
        if nearly_done:
            await asyncio.wait(nearly_done, timeout=CLOSE_TIMEOUT_S)
        tasks = [*self._tasks, *filter(None, (self._creating,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        running = [batch.ids[0] for batch in self._batches.values() if batch.is_named]
        if running and self._records is not None:
            log.warning(
                "%s: %d batches continue at the provider; run the query again to get their answers: %s",
                *(self._client.name, len(running), ", ".join(running)),
            )
        elif running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    paths = (f"{self._service.path}/{batch_id}/cancel" for batch_id in running)
                    await asyncio.gather(*(self._client.json("POST", path) for path in paths), return_exceptions=True)
        await self._client.close()

    # --- queue ---

    async def _serve(self) -> None:
        """Submit batches when they are due."""
        while True:
            self._wake.clear()
            self._sort_arrived()
            wait_s = self._queue.wait_s(time.monotonic())
            if wait_s <= 0:
                await self._gate.wait()
                await self._submit(self._queue.take())
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                    await self._wake.wait()

    def _sort_arrived(self) -> None:
        """Queue new calls. Calls that are in a batch already wait for it."""
        arrived, self._arrived = self._arrived, []
        known = self._records.attempts([call.key for call in arrived]) if self._records and arrived else {}
        for call in arrived:
            attempts = known.get(call.key, NO_ATTEMPTS)
            call.next_attempt = attempts.next_attempt
            if attempts.token is None:
                self._enqueue([call])
            else:
                self._wait_for(attempts.token, call)

    def _enqueue(self, calls: Iterable[WaitingCall]) -> None:
        self._queue.add(calls)
        self._wake.set()

    def _wait_for(self, token: str, call: WaitingCall) -> None:
        """Let a call wait for a batch of an earlier run."""
        if (batch := self._batches.get(token)) is not None:
            batch.calls[call.key] = call
        elif token in self._tokens_read:
            self._settle(SubmittedBatch(token, {call.key: call}), None)
        else:
            batch = self._batches[token] = SubmittedBatch(token, {call.key: call})
            self._start(self._follow(batch))

    # --- submission ---

    async def _submit(self, calls: Sequence[WaitingCall]) -> None:
        if not calls:
            return
        batch = SubmittedBatch.of(calls)
        self._batches[batch.token] = batch
        try:
            if self._records is not None:
                attempts = [(call.key, call.next_attempt) for call in calls]
                await asyncio.to_thread(self._records.begin, batch.token, attempts, batch.intent)
            for call in calls:
                call.next_attempt += 1
            self._creating = asyncio.create_task(self._create(batch))
            await asyncio.shield(self._creating)
        except RequestRefusedError as exc:
            del self._batches[batch.token]
            self._refused(batch, exc)
        except ProviderUnusableError:
            raise
        except ProviderError as exc:
            raise ProviderUnusableError(f"{exc}\nA batch could not be submitted. Run again later.") from exc
        else:
            log.info("%s: %d requests submitted as batch %s", self._client.name, len(calls), ", ".join(batch.ids))
            self._start(self._follow(batch))

    async def _create(self, batch: SubmittedBatch) -> None:
        """Submit a batch. If the outcome is unknown, look for the batch before submitting it again.

        Delete the files of a batch that was not created. If the provider lists the batch only later, it fails for lack
        of its files.
        """
        intent, num_failures = batch.intent, 0
        while not batch.ids:
            uploaded: list[str] = []
            try:
                self._name(batch, await self._service.create(self._client, batch.token, batch.requests(), uploaded))
            except ProviderError as exc:
                num_failures += 1
                is_unknown = isinstance(exc, ProviderUnavailableError | InvalidAnswerError)
                if is_unknown:
                    await self._client.pause(num_failures, exc)  # a new batch may not be listed at once
                    batch.ids = await self._service.find(self._client, batch.token, intent, self._known_ids())
                if not batch.ids:
                    await self._client.delete(uploaded)
                    if not is_unknown or num_failures > self._client.settings.max_retries:
                        raise

    def _name(self, batch: SubmittedBatch, batch_id: str) -> None:
        batch.ids, batch.is_named = [batch_id], True
        if self._records is not None:
            self._records.name(batch.token, batch_id)

    def _refused(self, batch: SubmittedBatch, error: RequestRefusedError) -> None:
        """Handle a batch that the provider did not accept."""
        if error.status in (404, 405):
            said = str(error).splitlines()[0]
            raise ProviderUnusableError(
                f"{said}\nThe server seems to have no batch API; leave out batch_api=True to send requests one by one."
            ) from error
        self._end_attempts(batch.calls.values())
        if error.status == 413 and len(batch.calls) > 1:
            self._queue.shrink(len(batch.calls))
            self._enqueue(batch.calls.values())
        else:
            self._fail(batch.calls.values(), error)

    # --- results ---

    async def _follow(self, batch: SubmittedBatch) -> None:
        """Wait for a batch and settle its calls."""
        try:
            state = await self._results(batch)
        except ProviderUnusableError:
            raise
        except ProviderError as exc:
            name = ", ".join(batch.ids) or batch.token
            raise ProviderUnusableError(f"{exc}\nThe answers of batch {name} could not be read. Run again.") from exc
        if self._records is not None:
            await asyncio.to_thread(self._records.flush)  # before the provider's files are deleted
        del self._batches[batch.token]
        self._tokens_read.add(batch.token)
        self._queue.note_end(time.monotonic())
        self._settle(batch, state)
        if state is not None:
            log.info(
                "%s: batch %s ended; %d answers, %d errors",
                *(self._client.name, state.id, len(batch.answered), len(batch.errors)),
            )
            await self._client.delete((*state.result_files, *state.input_files))

    async def _results(self, batch: SubmittedBatch) -> BatchState | None:
        """Read the results of a batch when it has ended and return its state; None if it was never created."""
        if not batch.is_own:
            await self._identify(batch)
        for batch_id in batch.ids:
            state = await ended_state(self._service, self._client, batch, batch_id, self._poll_interval_s)
            if state is None:
                continue
            if (task := asyncio.current_task()) is not None:
                self._finishing.add(task)
            self._queue.note_end(time.monotonic())  # the first answers lead to other calls before the last is read
            is_this_one = batch.is_named

            def take(result: BatchResult) -> None:
                nonlocal is_this_one
                if (key := batch.key_of(result.custom_id)) is not None:
                    is_this_one = True
                    self._take(batch, key, result)

            try:
                await self._service.results(self._client, state, take)
            except InvalidAnswerError as exc:
                if len(batch.calls) > 1 and not (batch.answered or batch.errors):
                    raise  # the server sent something other than the results
                log.warning("%s: %s", self._client.name, exc)
            if is_this_one:
                self._name(batch, batch_id)
                return state
        return None

    async def _identify(self, batch: SubmittedBatch) -> None:
        """Find the provider's id of a batch that an earlier run submitted, or was about to submit."""
        assert self._records is not None
        if (batch_id := self._records.batch_id(batch.token)) is not None:
            batch.ids, batch.is_named = [batch_id], True
        elif (intent := self._records.intent(batch.token)) is not None:
            batch.ids = await self._service.find(self._client, batch.token, intent, self._known_ids())
        name = ", ".join(batch.ids) or f"{batch.token} (never submitted)"
        log.info("%s: resuming batch %s of an earlier run", self._client.name, name)

    def _take(self, batch: SubmittedBatch, key: bytes, result: BatchResult) -> None:
        """Store the answer to a call, and pass it to the caller if there is one."""
        if key in batch.answered:  # the first answer counts
            return
        call = batch.calls.get(key)
        try:
            if result.error is not None:
                raise result.error
            usage, read = usage_in(result.body), self._read
            if call is not None:
                call.api_call.observer.answered(usage or Usage(call.api_call.tokens, 0))
                read = call.api_call.read
            answer = self._client.understood(result.body, usage, read)
        except ProviderError as exc:
            batch.errors[key] = exc
            return
        if self._memo is not None:
            self._memo.put(key, answer)
        batch.answered.add(key)
        self._num_answers += 1
        batch.errors.pop(key, None)
        if call is not None:
            del batch.calls[key]
            call.answer(answer)

    def _settle(self, batch: SubmittedBatch, state: BatchState | None) -> None:
        """Submit calls without an answer again, or fail them."""
        left = [call for call in batch.calls.values() if not call.future.done()]
        stored = self._memo.get([call.key for call in left]) if left and self._memo is not None else {}
        self._end_attempts(call for call in left if call.key not in stored)
        is_held = state is not None and state.is_too_much and self._is_held_back(batch)
        for call in left:
            if call.key in stored:
                call.answer(stored[call.key])
            elif is_held or not batch.is_named:
                self._enqueue([call])
            else:
                self._retry_or_fail(call, batch.errors.get(call.key) or self._no_result(batch, state))

    def _no_result(self, batch: SubmittedBatch, state: BatchState | None) -> ProviderError:
        name = f"{self._client.name}, batch {', '.join(batch.ids)}"
        if state is None:
            return ProviderUnavailableError(f"{name} is not known to the provider any more")
        if state.problem is None or not batch.is_own:
            return ProviderUnavailableError(f"{name} ended without a result for this request")
        return state.problem

    def _retry_or_fail(self, call: WaitingCall, error: ProviderError) -> None:
        call.num_failures += 1
        if is_transient(error) and call.num_failures <= self._client.settings.max_retries:
            self._enqueue([call])
        elif isinstance(error, RateLimitedError):  # no single request is to blame for too many requests
            call.fail(WaitTooLongError(str(error)))
        elif isinstance(error, ProviderUnavailableError) and self._num_answers == call.num_answers_before:
            call.fail(OutageError(f"{error}\nThe server answered no other request in these batches. Run again later."))
        else:
            call.fail(error)

    def _is_held_back(self, batch: SubmittedBatch) -> bool:
        """Hold the queue back until the provider has room, or shrink batches. Return False if neither helps."""
        if not self._batches and len(batch.keys) <= 1:
            return False
        if not self._batches:
            self._queue.shrink(len(batch.keys))
        self._queue.hold_back(time.monotonic(), bool(self._batches))
        return True

    # --- helpers ---

    def _known_ids(self) -> list[str]:
        return [batch_id for batch in self._batches.values() for batch_id in batch.ids]

    def _end_attempts(self, calls: Iterable[WaitingCall]) -> None:
        if self._records is not None:
            for call in calls:
                self._records.end(call.key, call.next_attempt - 1)

    def _fail(self, calls: Iterable[WaitingCall], error: BaseException) -> None:
        for call in calls:
            call.fail(error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background. If it fails, all calls fail with its error."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._finishing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._fail(list(self._calls.values()), error)
