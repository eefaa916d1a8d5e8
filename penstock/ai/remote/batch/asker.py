"""Calls answered by a provider's batch API. Each waits like any call; behind them they are gathered and submitted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import orjson

from penstock.ai.provider import BatchSettings
from penstock.ai.remote.batch.calls import Batch, WaitingCall
from penstock.ai.remote.batch.client import BatchClient
from penstock.ai.remote.batch.decisions import may_pass
from penstock.ai.remote.batch.gathering import Gathering
from penstock.ai.remote.batch.polling import ended_state
from penstock.ai.remote.batch.records import NEVER, Records
from penstock.ai.remote.batch.service import BatchResult, BatchService, BatchState
from penstock.ai.remote.wires.wire import ApiCall
from penstock.errors import (
    InvalidAnswerError,
    PenstockError,
    ProviderError,
    ProviderUnavailableError,
    ProviderUnusableError,
    RequestRefusedError,
)

log = logging.getLogger("penstock.ai")

Answer = TypeVar("Answer")
CLOSING_S = 5.0  # for the provider to hear that batches are not wanted any more


class Answers(Protocol[Answer]):
    """What is made of the bodies of answers, and where they are kept."""

    def read(self, body: Mapping[str, Any]) -> Answer:
        """Return what a body holds, or raise InvalidAnswerError."""
        ...

    def keep(self, key: bytes, answer: Answer) -> None:
        """Keep an answer in the ledger, if there is one."""
        ...

    def recall(self, keys: Sequence[bytes]) -> dict[bytes, Answer]:
        """Return the answers that are kept."""
        ...


class BatchAsker(Generic[Answer]):
    """The batches of one model. Used on one event loop; ``records`` is None where nothing outlives the run."""

    def __init__(
        self,
        service: BatchService,
        client: BatchClient,
        settings: BatchSettings,
        answers: Answers[Answer],
        records: Records | None,
    ) -> None:
        self._service, self._client, self._answers, self._records = service, client, answers, records
        self._poll_interval_s = settings.poll_interval_s
        self._gathering = Gathering(service.limits.lowered(settings.max_requests), settings.poll_interval_s)
        self._calls: dict[bytes, WaitingCall] = {}
        self._arrived: list[WaitingCall] = []  # of which it is not known yet whether they are in a batch
        self._batches: dict[str, Batch] = {}  # that are submitted or being so, by token
        self._tokens_read: set[str] = set()  # of batches that are over
        self._wake = asyncio.Event()
        self._server: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finishing: set[asyncio.Task[Any]] = set()  # of the tasks: those whose batch has ended
        self._error: BaseException | None = None
        if records is None:
            log.info(
                "%s: batches are not kept in a ledger, and cannot be taken up again by another run; "
                "set cache_dir for that",
                client.name,
            )

    async def ask(self, key: bytes, call: ApiCall) -> Answer:
        """Return the answer to a call, whenever that is there. Equal keys are one call."""
        if self._error is not None:
            raise self._error
        if (waiting := self._calls.get(key)) is not None:
            shared: Answer = await asyncio.shield(waiting.future)
            return shared
        body = orjson.dumps(call.body, option=orjson.OPT_SERIALIZE_NUMPY)
        waiting = WaitingCall(key, call.path, body, asyncio.get_running_loop().create_future())
        self._calls[key] = waiting
        self._arrived.append(waiting)
        self._gathering.note_arrival(time.monotonic())
        self._wake.set()
        if self._server is None:
            self._server = self._start(self._serve())
        try:
            answer: Answer = await waiting.future
            return answer
        finally:
            self._calls.pop(key, None)

    def hurry(self) -> None:
        """Submit what has gathered without waiting for more: what would come waits for a batch to end.

        While the answers of one are read, which let others go on, more will come.
        """
        if not self._finishing:
            self._gathering.hurry()
            self._wake.set()

    async def close(self) -> None:
        """Let go of everything. Batches that run go on where they can be taken up again, and are cancelled if not."""
        nearly_done = set(self._finishing)
        if self._creating is not None and not self._creating.done() and self._records is None:
            nearly_done.add(self._creating)  # or nobody would know what was created
        if nearly_done:
            await asyncio.wait(nearly_done, timeout=CLOSING_S)
        tasks = [*self._tasks, *filter(None, (self._creating,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        running = [batch.ids[0] for batch in self._batches.values() if batch.is_named]
        if running and self._records is not None:
            log.warning(
                "%s: %d batches go on at the provider; run the query again to have their answers: %s",
                *(self._client.name, len(running), ", ".join(running)),
            )
        elif running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    cancelled = (self._service.cancel(self._client, batch_id) for batch_id in running)
                    await asyncio.gather(*cancelled, return_exceptions=True)
        if self._records is not None:
            await asyncio.to_thread(self._records.close)

    # --- gathering ---

    async def _serve(self) -> None:
        """Submit what has gathered, when it is time."""
        while True:
            self._wake.clear()
            self._sort_arrived()
            wait_s = self._gathering.wait_s(time.monotonic())
            if wait_s <= 0:
                await self._submit(self._gathering.take())
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                    await self._wake.wait()

    def _sort_arrived(self) -> None:
        """Gather the calls that are new; those that are in a batch wait for it."""
        arrived, self._arrived = self._arrived, []
        known = self._records.submissions([call.key for call in arrived]) if self._records and arrived else {}
        for call in arrived:
            submission = known.get(call.key, NEVER)
            call.next_attempt = submission.next_attempt
            if submission.token is None:
                self._gather([call])
            else:
                self._wait_for(submission.token, call)

    def _gather(self, calls: Iterable[WaitingCall]) -> None:
        self._gathering.add(calls)
        self._wake.set()

    def _wait_for(self, token: str, call: WaitingCall) -> None:
        """Let a call wait for a batch of an earlier run."""
        if (batch := self._batches.get(token)) is not None:
            batch.calls[call.key] = call
        elif token in self._tokens_read:
            self._settle(Batch(token, {call.key: call}), None)
        else:
            batch = self._batches[token] = Batch(token, {call.key: call})
            self._start(self._follow(batch))

    # --- submitting ---

    async def _submit(self, calls: Sequence[WaitingCall]) -> None:
        if not calls:
            return
        batch = Batch.of(calls)
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
            del self._batches[batch.token]
            self._fail(batch.calls.values(), exc)
        else:
            log.info("%s: %d requests submitted as batch %s", self._client.name, len(calls), ", ".join(batch.ids))
            self._start(self._follow(batch))

    async def _create(self, batch: Batch) -> None:
        """Submit a batch; where it is not sure whether that worked, look for it before it is done again."""
        intent, num_failures = batch.intent, 0
        while not batch.ids:
            try:
                self._name(batch, await self._service.create(self._client, batch.token, batch.requests()))
            except (ProviderUnavailableError, InvalidAnswerError) as exc:
                num_failures += 1
                if num_failures > self._client.max_retries:
                    raise
                await self._client.pause(num_failures, exc)  # a list may not show at once what was created
                batch.ids = await self._service.find(self._client, batch.token, intent, self._known_ids())

    def _name(self, batch: Batch, batch_id: str) -> None:
        batch.ids, batch.is_named = [batch_id], True
        if self._records is not None:
            self._records.name(batch.token, batch_id)

    def _refused(self, batch: Batch, error: RequestRefusedError) -> None:
        """Deal with a batch that the provider does not take."""
        if error.status == 413 and len(batch.calls) > 1:
            self._gathering.take_less(len(batch.calls))
            self._end_attempts(batch.calls.values())
            self._gather(batch.calls.values())
        elif error.status in (404, 405):
            raise ProviderUnusableError(
                f"{error}\nThe server seems to have no batch API; leave out batch_api=True, and rows are asked one by "
                "one, many at once."
            ) from error
        else:
            self._end_attempts(batch.calls.values())
            self._fail(batch.calls.values(), error)

    # --- following ---

    async def _follow(self, batch: Batch) -> None:
        """Wait for a batch, and settle its calls."""
        try:
            state = await self._results(batch)
        except ProviderUnusableError:
            raise
        except ProviderError as exc:  # it may go on; another run takes it up
            del self._batches[batch.token]
            self._fail(batch.calls.values(), exc)
            return
        if self._records is not None:
            await asyncio.to_thread(self._records.flush)  # before files are deleted
        del self._batches[batch.token]
        self._tokens_read.add(batch.token)
        self._gathering.note_end(time.monotonic())
        self._settle(batch, state)
        if state is not None:
            log.info(
                "%s: batch %s ended; %d answers, %d errors",
                *(self._client.name, state.id, batch.num_answers, len(batch.errors)),
            )
            await self._service.clean_up(self._client, state)

    async def _results(self, batch: Batch) -> BatchState | None:
        """Read the results of a batch once it has ended, and return how it did; None if there was none."""
        if not batch.is_own:
            await self._take_up(batch)
        for batch_id in batch.ids:
            state = await ended_state(self._service, self._client, batch, batch_id, self._poll_interval_s)
            if state is None:
                continue
            if (task := asyncio.current_task()) is not None:
                self._finishing.add(task)
            self._gathering.note_end(time.monotonic())  # the first answers lead to other calls before the last is read
            is_meant = batch.is_named

            def take(result: BatchResult) -> None:
                nonlocal is_meant
                if (key := batch.key_of(result.custom_id)) is not None:
                    is_meant = True
                    self._take(batch, key, result)

            await self._service.results(self._client, state, take)
            if is_meant:
                self._name(batch, batch_id)
                return state
        return None

    async def _take_up(self, batch: Batch) -> None:
        """Find out which batch it was that an earlier run submitted, or was about to."""
        assert self._records is not None
        if (batch_id := self._records.batch_id(batch.token)) is not None:
            batch.ids, batch.is_named = [batch_id], True
        elif (intent := self._records.intent(batch.token)) is not None:
            batch.ids = await self._service.find(self._client, batch.token, intent, self._known_ids())
        log.info(
            "%s: batch %s of an earlier run is taken up",
            self._client.name, ", ".join(batch.ids) or f"{batch.token} (never submitted)",
        )  # fmt: skip

    def _take(self, batch: Batch, key: bytes, result: BatchResult) -> None:
        """Answer a call, whether or not somebody waits for it by now."""
        if result.error is not None:
            batch.errors[key] = result.error
            return
        try:
            answer = self._answers.read(result.body)
        except PenstockError as exc:
            batch.errors[key] = exc if isinstance(exc, ProviderError) else InvalidAnswerError(str(exc))
            return
        except Exception as exc:
            batch.errors[key] = InvalidAnswerError(
                f"{self._client.name} answered in a form that is not understood: {type(exc).__name__}: {exc}"
            )
            return
        self._answers.keep(key, answer)
        batch.num_answers += 1
        if (call := batch.calls.pop(key, None)) is not None:
            call.answer(answer)

    def _settle(self, batch: Batch, state: BatchState | None) -> None:
        """Submit the calls again that a batch has no answer for, or say why they are given up."""
        left = [call for call in batch.calls.values() if not call.future.done()]
        kept = self._answers.recall([call.key for call in left]) if left else {}
        self._end_attempts(call for call in left if call.key not in kept)
        is_held = state is not None and state.is_too_much and self._is_held_back(batch)
        errors = {**batch.refused(state), **batch.errors} if state is not None else {}
        for call in left:
            if call.key in kept:
                call.answer(kept[call.key])
            elif is_held or not batch.is_named:
                self._gather([call])
            else:
                self._ask_again(call, errors.get(call.key) or self._no_result(batch, state))

    def _no_result(self, batch: Batch, state: BatchState | None) -> ProviderError:
        """Return why a call has no answer that nothing was said of."""
        name = f"{self._client.name}, batch {', '.join(batch.ids)}"
        if state is None:
            return ProviderUnavailableError(f"{name} is not known to the provider any more")
        if state.problem is None or not batch.is_own:
            return ProviderUnavailableError(f"{name} ended without a result for this request")
        if not state.lines:
            return state.problem
        return ProviderUnavailableError(f"{name} was refused for other requests: {state.problem}")

    def _ask_again(self, call: WaitingCall, error: ProviderError) -> None:
        call.num_failures += 1
        if may_pass(error) and call.num_failures <= self._client.max_retries:
            self._gather([call])
        else:
            call.fail(error)

    def _is_held_back(self, batch: Batch) -> bool:
        """Say whether calls wait for room at the provider: until another batch ends, or in smaller batches."""
        if not self._batches and len(batch.order) <= 1:
            return False
        if not self._batches:
            self._gathering.take_less(len(batch.order))
        self._gathering.hold_back(time.monotonic(), bool(self._batches))
        return True

    # --- what several of these need ---

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
        """Run something beside the calls; what it fails of, all calls fail of, as nobody else would hear of it."""
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
