"""The ``prompt`` function in a worker: rows to requests, answers to values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.ai.cached_model import CachedModel
from penstock.ai.client.cached_calls import Found
from penstock.ai.conversation import GENERATIONS, Generation, Request
from penstock.ai.dialogue import Exchange, PromptSettings, checked_answers, run_tools, type_name
from penstock.ai.messages.message import Message, is_quick, message_of, read_message
from penstock.ai.provider import ModelTask, Prompter, Provider, loaded
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.cache.ledger.open_ledgers import is_asking_again
from penstock.cache.ordinals import row_ids
from penstock.cost.accounts import current_account
from penstock.errors import ContentFilteredError, InvalidAnswerError
from penstock.protocols import Priced
from penstock.types import DataType, PartialColumn, Series, to_arrow_array
from penstock.udf.instances import RowLookup, Unfinished

TOOLS_CHECK_S = 0.01  # between two looks for requests while tools run


class AsyncPrompts(RowLookup):
    """Prompts to a model that takes one request at a time, many concurrently.

    If the model caches its answers, the rows of a task are first looked up together (``results``). The others are then
    asked one by one (``finish``).
    """

    def __init__(self, model: Prompter, settings: PromptSettings) -> None:
        self._model = loaded(model)
        self._is_own = isinstance(self._model, ApiPrompter)  # else its answers are checked
        self._cached = self._model.cached if isinstance(self._model, ApiPrompter) else None
        self._asks_again = self._cached is not None and is_asking_again()
        self._settings = settings = replace(settings, takes_cache_control=model.takes_cache_control)
        self._empty_request = settings.request(Message(()))
        self.has_lookup = self._cached is not None or self._model.needs_row_ids
        self._is_bare = settings.has_bare_value
        self.close = self._model.close
        self._parse: Callable[[str], Any] = str if settings.output is None else settings.output.parse

    @property
    def takes_options(self) -> bool:
        return self._model.takes_options

    async def answer(self, *values: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Return the value of a row."""
        parts, own = self._settings.split(values)
        message = await read_message(parts)
        if message is None:
            return None
        request = self._settings.request(message, options or own)
        return await self._value(request, await self._model.generate(request))

    # --- cached answers ---

    def results(self, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the value of each row whose answer is cached, and ``Unfinished`` for the others."""
        ids, cached = row_ids(len(rows)), self._cached
        # One lookup for each row: several answers may take several requests, and invalid options are the row's error.
        if cached is None or self._settings.num_answers is not None or self._settings.row_options:
            return [Unfinished(None, row_id) for row_id in ids]
        if rows and len(rows[0]) == 1 and all(type(row[0]) is str for row in rows):
            found = cached.look_up_texts([row[0] for row in rows], self._empty_request, ids)
            return [
                self._finished(each, row_id) if type(each) is list else Unfinished(each, row_id)
                for each, row_id in zip(found, ids, strict=True)
            ]
        requests, results = dict[int, Request](), list[Any]()
        for number, row in enumerate(rows):
            results.append(Unfinished(None, ids[number]))
            if all(is_quick(value) for value in row):
                try:
                    message = message_of(row)
                    if message is None:
                        results[number] = None
                    else:
                        requests[number] = self._settings.request(message, row_id=ids[number])
                except Exception:  # asking for the row raises it again
                    continue
        for number, each in zip(requests, cached.look_up(list(requests.values())), strict=True):
            results[number] = self._finished(each, ids[number])
        return results

    async def finish(self, unfinished: Unfinished, *values: Any) -> Any:
        """Return the value of a row after its lookup, which may have found a first answer."""
        found: Found | None = unfinished.found
        if isinstance(found, Exception):
            raise found
        parts, options = self._settings.split(values)
        message = await read_message(parts)
        if message is None:
            return None
        if isinstance(found, list):
            return await self._continue(self._settings.request(message, options, unfinished.row_id), found[0])
        request = self._settings.request(message, options, unfinished.row_id, found)
        return await self._value(request, await self._model.generate(request))

    def _finished(self, found: Found, row_id: bytes | None) -> Any:
        """Return the value of a cached answer; ``Unfinished`` if there is no answer, or if the conversation goes on."""
        if not isinstance(found, list):
            return Unfinished(found, row_id)
        answer = found[0]
        if self._is_last(answer):
            with suppress(InvalidAnswerError):
                return self._parse(answer.text)
        exchange = Exchange(self._settings, self._empty_request)
        try:
            exchange.take(answer)
            return exchange.result() if exchange.is_done else Unfinished(found, row_id)
        except Exception:  # raised again by ``finish``, as the error of the row
            return Unfinished(found, row_id)

    def _is_last(self, answer: Generation) -> bool:
        """Return whether a row's value is the text of an answer, if it can be parsed: the usual case."""
        return self._is_bare and bool(answer.text) and not answer.tool_calls and not answer.refusal

    # --- requests ---

    async def _value(self, request: Request, answers: Sequence[Generation]) -> Any:
        """Return the value of a row, given the first answers to its request."""
        if not self._is_own:
            answers = checked_answers(answers, request.num_answers, self._model)
        if self._settings.num_answers is None:
            answer = answers[0]
            if self._is_last(answer):
                with suppress(InvalidAnswerError):
                    return self._parse(answer.text)
            return await self._continue(request, answer)
        return list(await asyncio.gather(*(self._continue(request, answer) for answer in answers)))

    async def _continue(self, request: Request, answer: Generation) -> Any:
        """Return the value of a conversation that begins with an answer. If the job runs its failed rows again, the
        model gives another answer in place of an invalid one from the ledger.
        """
        while True:
            try:
                return await conversation(self._settings, request, answer, self._ask)
            except (InvalidAnswerError, ContentFilteredError):
                is_stored = answer.latency_s is None
                if not self._asks_again or not is_stored or self._model.is_certain(request):
                    raise
                answer = (await self._model.generate(replace(request, key=None, num_answers=1)))[0]

    async def _ask(self, request: Request) -> Sequence[Generation]:
        return checked_answers(await self._model.generate(request), request.num_answers, self._model)


class ModelOfRow(Prompter):
    """The models that the rows name, each loaded for its first row. Null means the provider's default."""

    takes_options = True
    needs_row_ids = True

    def __init__(self, provider: Provider, task: ModelTask, example: Prompter) -> None:
        self._provider, self._task = provider, task
        self._models: dict[str | None, Prompter] = {}
        self.resources, self.cache = example.resources, example.cache
        self.base_url, self.takes_tools = example.base_url, example.takes_tools
        self.takes_cache_control = example.takes_cache_control

    async def generate(self, request: Request) -> Any:
        options = dict(request.options or {})
        name = options.pop("model", None)
        if name not in self._models:
            self._models[name] = self._loaded(name)
        return await self._models[name].generate(replace(request, options=options))

    async def close(self) -> None:
        for model in self._models.values():
            if inspect.isawaitable(closing := model.close()):
                await closing

    @property
    def billed_as(self) -> None:
        return None

    def check_price(self) -> None:
        """Check nothing here: the rows name the models, and ``_loaded`` checks each."""

    def _loaded(self, name: str | None) -> Prompter:
        model = self._provider.model(replace(self._task, model=name))
        assert isinstance(model, Prompter)
        account = current_account()
        if account is not None and account.budget is not None and isinstance(model, Priced):
            model.check_price()
        return loaded(model)


class BatchPrompts:
    """Prompts to a model that takes a batch of requests."""

    def __init__(self, model: Prompter, settings: PromptSettings) -> None:
        self._model = CachedModel(model, GENERATIONS)
        self._waiting: list[tuple[Request, asyncio.Future[Sequence[Generation]]]] = []
        self.close = self._model.close
        self._settings = replace(settings, takes_cache_control=model.takes_cache_control)

    @property
    def takes_options(self) -> bool:
        return self._model.model.takes_options

    def answer(self, *columns: Any) -> PartialColumn:
        num_rows = max(len(column) for column in columns if isinstance(column, Series))
        lists = [c.to_pylist() if isinstance(c, Series) else [c] * num_rows for c in columns]
        rows = (self.row(*self._settings.split(values)) for values in zip(*lists, strict=True))
        return self.column(rows, self._settings.dtype)

    def column(self, rows: Iterable[Coroutine[Any, Any, Any]], dtype: DataType) -> PartialColumn:
        """Run what asks for each row, and return the results as a column."""
        found = asyncio.run(self._results(rows))
        failures = {row: each for row, each in enumerate(found) if isinstance(each, Exception)}
        values = [None if row in failures else each for row, each in enumerate(found)]
        return PartialColumn(to_arrow_array(values, dtype, what="prompt"), failures)

    async def _results(self, rows: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Return the result of each row, or its error. The model answers the requests of all rows together."""
        tasks = list(map(asyncio.create_task, rows))
        pending, timeout_s = set(tasks), 0.0
        while pending:
            _, pending = await asyncio.wait(pending, timeout=timeout_s)
            timeout_s = 0.0 if self._waiting else TOOLS_CHECK_S
            waiting, self._waiting = self._waiting, []
            for (_, future), answers in zip(waiting, self._generate([each for each, _ in waiting]), strict=True):
                if isinstance(answers, Exception):
                    future.set_exception(answers)
                else:
                    future.set_result(answers)
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def row(self, values: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
        """Return the value of a row, whose own options are ``options``."""
        message = message_of(values)
        if message is None:
            return None
        request = self._settings.request(message, options)
        answers = await self._ask(request)
        found = await asyncio.gather(*(conversation(self._settings, request, each, self._ask) for each in answers))
        return found[0] if self._settings.num_answers is None else found

    async def _ask(self, request: Request) -> Sequence[Generation]:
        future: asyncio.Future[Sequence[Generation]] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        return await future

    def _generate(self, requests: list[Request]) -> list[Sequence[Generation] | Exception]:
        """Return the answers to each request, or its error."""
        return self._model.answers(requests, self._generate_uncached) if requests else []

    def _generate_uncached(self, requests: Sequence[Request]) -> list[Sequence[Generation] | Exception]:
        model = self._model.loaded()
        given, name = model.generate(requests), type(model).__name__
        if not isinstance(given, list | tuple):
            raise InvalidAnswerError(
                f"{name}.generate was given {len(requests)} requests and returned {type_name(given)}; return a list "
                "with the answers to each, or use `async def` to get one request at a time"
            )
        if len(given) != len(requests):
            raise InvalidAnswerError(
                f"{name}.generate was given {len(requests)} requests and returned the answers to {len(given)}; return "
                "a list of answers, or an exception, for each request"
            )
        found: list[Sequence[Generation] | Exception] = []
        for request, each in zip(requests, given, strict=True):
            try:
                found.append(each if isinstance(each, Exception) else checked_answers(each, request.num_answers, model))
            except InvalidAnswerError as exc:
                found.append(exc)
        return found


async def conversation(
    settings: PromptSettings,
    request: Request,
    answer: Generation,
    ask: Callable[[Request], Awaitable[Sequence[Generation]]],
) -> Any:
    """Return the value of a conversation that begins with an answer. ``ask`` answers further requests."""
    exchange = Exchange(settings, request)
    exchange.take(answer)
    while not exchange.is_done:
        if exchange.to_run:
            exchange.take_results(await run_tools(settings.tools, exchange.to_run))
        assert exchange.request is not None
        exchange.take((await ask(exchange.request))[0])
    return exchange.result()
