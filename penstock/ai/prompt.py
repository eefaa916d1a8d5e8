"""One row of ``prompt``: ask, run the tools it calls for, check the answer, ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.ai.conversation import Generation, ModelTurn, Request, Text, ToolCall, ToolResult, ToolTurn, UserTurn
from penstock.ai.kept_results import KeptModel
from penstock.ai.known_answers import UNSETTLED, KnownAnswers, UnknownAnswers
from penstock.ai.messages.message import Message, message_of, read_message
from penstock.ai.provider import Prompter, loaded
from penstock.ai.remembering import Found
from penstock.ai.samples import asking_row
from penstock.ai.structured.formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.cost.prices import cost_of
from penstock.errors import ContentFilteredError, InvalidAnswerError
from penstock.types import DataType, PartialColumn, Series, to_arrow_array
from penstock.udf.callers import Prepared, Unfinished

USAGE = {
    "model": DataType.string(),
    "input_tokens": DataType.int64(),
    "output_tokens": DataType.int64(),
    "cached_tokens": DataType.int64(),
    "cost": DataType.float64(),
    "latency_s": DataType.float64(),
    "finish_reason": DataType.string(),
    "tool_calls": DataType.list(DataType.struct({"name": str, "arguments": str, "result": str})),
    "reasoning": DataType.string(),
}


@dataclass(frozen=True)
class PromptForm:
    """What is the same for all rows of a call of ``prompt``."""

    provider: str = ""
    system: str | None = None
    output: OutputFormat | None = None
    tools: tuple[ToolFunction, ...] = ()
    num_answers: int | None = None  # None: one, which is the value itself and no list
    has_usage: bool = False
    max_reasks: int = 1
    max_tool_rounds: int = 10
    price: Mapping[str, float] | None = None  # the user's own
    is_batch: bool = False  # whether calls are made, and paid, by the provider's batch API

    @property
    def dtype(self) -> DataType:
        """The type of the column."""
        value = DataType.string() if self.output is None else self.output.dtype
        if self.has_usage:
            value = DataType.struct({"value": value, **USAGE})
        return value if self.num_answers is None else DataType.list(value)

    def request(self, message: Message, options: Mapping[str, Any] | None = None) -> Request:
        """Return what a row asks; its own system message and options go before those of all rows.

        Where ``num_answers`` makes the answers a list, an ``n`` among the options says how many this row wants.
        """
        system = self.system if message.system is None else message.system
        num_answers = self.num_answers or 1
        if options and "n" in options:
            options = dict(options)
            num_answers = options.pop("n")
        return Request(message.turns, system, self.output, self.tools, num_answers, options)


class Exchange:
    """The talk about one answer. ``request`` is what is asked next, None once there is a value."""

    def __init__(self, form: PromptForm, request: Request) -> None:
        self.request: Request | None = request
        self.value: Any = None
        self.to_run: tuple[ToolCall, ...] = ()
        self._form = form
        self._asked = request
        self._answers: list[Generation] = []
        self._results: list[ToolResult] = []
        self._num_reasks = 0
        self._num_rounds = 0

    def take(self, answer: Generation) -> None:
        """Look at an answer: it is the value, or tools are to be run for it, or it must be asked for again."""
        self._answers.append(answer)
        if answer.tool_calls and self._asked.tools:
            self._num_rounds += 1
            if self._num_rounds > self._form.max_tool_rounds:
                raise InvalidAnswerError(
                    f"the model called tools in {self._form.max_tool_rounds} rounds without an answer; "
                    "set max_tool_rounds= to allow more"
                )
            self.to_run, self.request = answer.tool_calls, None
            return
        if answer.refusal:
            raise ContentFilteredError(f"the model declined to answer: {answer.refusal}")
        self.to_run = ()
        if answer.tool_calls:
            self._show_calls(answer)
            return
        if not answer.text and answer.finish_reason == "length":
            raise InvalidAnswerError(
                "the model reached its longest output before it wrote anything, as models do that think first; allow "
                "more by max_output_tokens=, or less thought by reasoning="
            )
        try:
            self.value = answer.text if self._form.output is None else self._form.output.parse(answer.text)
            self.request = None
        except InvalidAnswerError as exc:
            self._ask_again(answer, exc)

    def tell(self, results: Sequence[ToolResult]) -> None:
        """Go on with what the tools gave."""
        self._results += results
        self.to_run = ()
        self._continue(self._said(self._answers[-1]), ToolTurn(tuple(results)))

    def result(self) -> Any:
        """Return the value, with what it took if that was asked for."""
        if not self._form.has_usage:
            return self.value
        last = self._answers[-1]
        usage = {name: _sum([getattr(each, name) for each in self._answers]) for name in _SUMMED}
        calls = [
            {"name": each.call.name, "arguments": each.call.arguments, "result": each.content} for each in self._results
        ]
        tokens = {name: usage[name] for name in _TOKENS}
        return {
            "value": self.value,
            "model": last.model,
            **usage,
            "cost": cost_of(
                *(self._form.provider, last.model),
                **tokens,
                price=self._form.price,
                is_batch=self._form.is_batch,
            ),
            "finish_reason": last.finish_reason,
            "tool_calls": calls + [{"name": c.name, "arguments": c.arguments, "result": None} for c in last.tool_calls],
            "reasoning": last.reasoning,
        }

    def _show_calls(self, answer: Generation) -> None:
        """End with calls of functions that nobody can run here: ``usage`` shows them, else they are an error."""
        if not self._form.has_usage:
            names = ", ".join(dict.fromkeys(call.name for call in answer.tool_calls))
            raise InvalidAnswerError(
                f"the model called {names} and gave no answer; functions that are to be run go into tool_functions=, "
                "and usage=True gives the calls themselves, in tool_calls"
            )
        self.value = answer.text or None if self._form.output is None else None
        self.request = None

    def _ask_again(self, answer: Generation, error: InvalidAnswerError) -> None:
        if answer.finish_reason == "length":
            raise InvalidAnswerError(
                f"the answer was cut at its longest; allow more by max_output_tokens=: {error}"
            ) from error
        if self._num_reasks >= self._form.max_reasks:
            raise error
        self._num_reasks += 1
        complaint = f"{error}\nAnswer again, with JSON of the form that was asked for and nothing else."
        self._continue(self._said(answer), UserTurn((Text(complaint),)))

    def _said(self, answer: Generation) -> ModelTurn:
        return ModelTurn(answer.text, answer.tool_calls, answer.raw)

    def _continue(self, *turns: ModelTurn | UserTurn | ToolTurn) -> None:
        self._asked = replace(self._asked, turns=(*self._asked.turns, *turns), num_answers=1)
        self.request = self._asked


_TOKENS = ("input_tokens", "output_tokens", "cached_tokens")
_SUMMED = (*_TOKENS, "latency_s")


def _sum(values: list[Any]) -> Any:
    """Return the sum of what is known, None where nothing is."""
    if len(values) == 1:
        return values[0]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def generations(given: Any, num_answers: int, model: Prompter) -> Sequence[Generation]:
    """Return what a model gave for a request as its answers. A text stands for an answer, and one for a list of it.

    What is neither is an error that names the class of the model, which the user may have written.
    """
    if isinstance(given, str | Generation):
        given = (given,)
    name = f"{type(model).__name__}.generate"
    if not isinstance(given, list | tuple):
        raise InvalidAnswerError(f"{name} returned {_named(given)} for a request; {_WANTED}")
    if len(given) < num_answers:
        raise InvalidAnswerError(f"{name} returned {len(given)} answers; request.num_answers is {num_answers}")
    answers = [Generation(each) if isinstance(each, str) else each for each in given[:num_answers]]
    for answer in answers:
        if not isinstance(answer, Generation):
            raise InvalidAnswerError(f"{name} returned {_named(answer)} among its answers; {_WANTED}")
        if not isinstance(answer.text, str):
            raise InvalidAnswerError(
                f"{name} returned Generation({_named(answer.text)}); its text is a str, also where there is none to "
                "give: raise an error then, or set refusal="
            )
    return answers


_WANTED = "return a list of Generation, request.num_answers of them"


def _named(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


class AsyncPrompts:
    """``prompt`` by a model that is asked a row at a time, many at once."""

    def __init__(self, model: Prompter, form: PromptForm) -> None:
        self._model = loaded(model)
        self._form = form
        self._usual = form.request(Message(()))
        self._is_plain = form.output is None and not form.has_usage

    @property
    def prepare(self) -> Prepared | None:
        """What is given the rows of a task before they are asked; None where no answers are kept."""
        if not getattr(self._model, "is_remembering", False):
            return None
        if self._form.num_answers is not None:
            return UnknownAnswers(self._ask_rest)
        model: Any = self._model
        return KnownAnswers(model, self._form.request, self._settled_at_once, self._ask_rest)

    def _settled_at_once(self, answer: Generation) -> Any:
        if self._is_plain and answer.text and not answer.tool_calls and not answer.refusal:
            return answer.text
        exchange = Exchange(self._form, self._usual)
        exchange.take(answer)
        return UNSETTLED if exchange.request is not None or exchange.to_run else exchange.result()

    async def _ask_rest(self, unfinished: Unfinished, *values: Any) -> Any:
        """Do for a row what is left to do: all of it, or what follows its first answer."""
        found: Found | None = unfinished.found
        if unfinished.row_id is not asking_row.get():
            asking_row.set(unfinished.row_id)
        if isinstance(found, Exception):
            raise found
        if found is None:
            return await self.answer(*values)
        message = await read_message(values)
        assert message is not None
        request = self._form.request(message)
        if isinstance(found, list):
            return await self._settled(request, found[0])
        model: Any = self._model
        return await self._settled(request, generations(await model.generate(request, found), 1, self._model)[0])

    async def answer(self, *values: Any, options: Mapping[str, Any] | None = None) -> Any:
        message = await read_message(values)
        if message is None:
            return None
        request = self._form.request(message, options)
        answers = generations(await self._model.generate(request), request.num_answers, self._model)
        if self._form.num_answers is None:
            return await self._settled(request, answers[0])
        return list(await asyncio.gather(*(self._settled(request, answer) for answer in answers)))

    async def _settled(self, request: Request, answer: Generation) -> Any:
        exchange = Exchange(self._form, request)
        exchange.take(answer)
        while exchange.request is not None or exchange.to_run:
            if exchange.to_run:
                exchange.tell(await run_tools(self._form.tools, exchange.to_run))
            assert exchange.request is not None
            exchange.take(generations(await self._model.generate(exchange.request), 1, self._model)[0])
        return exchange.result()

    @property
    def takes_options(self) -> bool:
        return self._model.takes_options

    def close(self) -> Any:
        return self._model.close()


async def run_tools(tools: Sequence[ToolFunction], calls: Sequence[ToolCall]) -> list[ToolResult]:
    """Run the tools that a model calls, at the same time; one that is not there is told to the model."""
    known = {tool.name: tool for tool in tools}

    async def run(call: ToolCall) -> ToolResult:
        if call.name not in known:
            return ToolResult(call, f"there is no tool {call.name!r}; there are: {', '.join(known)}", is_error=True)
        return await known[call.name].run(call)

    return list(await asyncio.gather(*map(run, calls)))


class BatchPrompts:
    """``prompt`` by a model that is asked many rows at a time."""

    def __init__(self, model: Prompter, form: PromptForm) -> None:
        self._model = KeptModel(model)
        self._form = form

    def answer(self, *columns: Any) -> PartialColumn:
        num_rows = max(len(column) for column in columns if isinstance(column, Series))
        lists = [c.to_pylist() if isinstance(c, Series) else [c] * num_rows for c in columns]
        return self.answered(list(zip(*lists, strict=True))).column()

    def answered(
        self, values: Sequence[tuple[Any, ...]], options: Sequence[Mapping[str, Any] | None] | None = None
    ) -> AnsweredRows:
        """Return the answers to the values of each row; ``options`` are the rows' own."""
        rows = AnsweredRows(self._form, len(values))
        requests = rows.requests(values, options or [None] * len(values))
        for row, given in zip(requests, self._generated(list(requests.values())), strict=True):
            rows.begin(row, requests[row], given)
        while asked := rows.asked():
            answers = self._generated([each.request for each in asked if each.request is not None])
            for exchange, given in zip(asked, answers, strict=True):
                rows.take(exchange, given)
        return rows

    def _generated(self, requests: list[Request]) -> list[Sequence[Generation] | Exception]:
        """Return the answers to each request, or why there are none: those that are kept, and what the model gives."""
        kept = self._model.kept
        if kept is None or not requests:
            return self._asked(requests)
        return kept.of_requests(requests, self._model.spec, self._asked)

    def _asked(self, requests: list[Request]) -> list[Sequence[Generation] | Exception]:
        given = self._model.ready().generate(requests) if requests else []
        name = type(self._model.spec).__name__
        if not isinstance(given, list | tuple):
            raise InvalidAnswerError(
                f"{name}.generate was given {len(requests)} requests and returned {_named(given)}; return a list with "
                "the answers to each, or make it `async def` to be given one request at a time"
            )
        if len(given) != len(requests):
            raise InvalidAnswerError(
                f"{name}.generate was given {len(requests)} requests and returned the answers to {len(given)}; return "
                "a list for each request, or an exception"
            )
        found: list[Sequence[Generation] | Exception] = []
        for request, each in zip(requests, given, strict=True):
            try:
                found.append(
                    each if isinstance(each, Exception) else generations(each, request.num_answers, self._model.spec)
                )
            except InvalidAnswerError as exc:
                found.append(exc)
        return found

    @property
    def takes_options(self) -> bool:
        return self._model.spec.takes_options

    def close(self) -> Any:
        return self._model.close()


class AnsweredRows:
    """The exchanges of a batch, and the rows that failed."""

    def __init__(self, form: PromptForm, num_rows: int) -> None:
        self._form = form
        self._num_rows = num_rows
        self._exchanges: dict[int, list[Exchange]] = {}
        self._row_of: dict[int, int] = {}
        self.failures: dict[int, Exception] = {}

    def requests(
        self, rows: Sequence[tuple[Any, ...]], options: Sequence[Mapping[str, Any] | None]
    ) -> dict[int, Request]:
        """Return what each row asks; null rows ask nothing."""
        requests = {}
        for row, values in enumerate(rows):
            try:
                message = message_of(values)
            except Exception as exc:
                self.failures[row] = exc
            else:
                if message is not None:
                    requests[row] = self._form.request(message, options[row])
        return requests

    def begin(self, row: int, request: Request, answers: Sequence[Generation] | Exception) -> None:
        if isinstance(answers, Exception):
            self.failures[row] = answers
            return
        self._exchanges[row] = [Exchange(self._form, request) for _ in answers]
        for exchange, answer in zip(self._exchanges[row], answers, strict=True):
            self._row_of[id(exchange)] = row
            self.take(exchange, [answer])

    def asked(self) -> list[Exchange]:
        """Return the exchanges that go on, once their tools have run."""

        async def run() -> None:
            for exchange in self._open():
                if exchange.to_run:
                    exchange.tell(await run_tools(self._form.tools, exchange.to_run))

        if any(exchange.to_run for exchange in self._open()):
            asyncio.run(run())
        return [exchange for exchange in self._open() if exchange.request is not None]

    def take(self, exchange: Exchange, answers: Sequence[Generation] | Exception) -> None:
        try:
            if isinstance(answers, Exception):
                raise answers
            exchange.take(answers[0])
        except Exception as exc:
            self.failures[self._row_of[id(exchange)]] = exc

    def values(self) -> list[Any]:
        """Return what each row gives, None where it failed or asked nothing."""
        values: list[Any] = [None] * self._num_rows
        for row, exchanges in self._exchanges.items():
            if row not in self.failures:
                results = [exchange.result() for exchange in exchanges]
                values[row] = results[0] if self._form.num_answers is None else results
        return values

    def column(self) -> PartialColumn:
        column: pa.Array = to_arrow_array(self.values(), self._form.dtype, what="prompt")
        return PartialColumn(column, self.failures)

    def _open(self) -> list[Exchange]:
        return [
            exchange for row, found in self._exchanges.items() if row not in self.failures for exchange in found
            if exchange.request is not None or exchange.to_run
        ]  # fmt: skip
