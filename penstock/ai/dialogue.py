"""The conversation that produces one answer: request, tool calls, validation, and repeated requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.conversation import Generation, ModelTurn, Request, Text, ToolCall, ToolResult, ToolTurn, UserTurn
from penstock.ai.messages.message import Message
from penstock.ai.provider import Prompter
from penstock.ai.structured.return_formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.cost.prices import cost_of
from penstock.cost.usage import Usage
from penstock.errors import ContentFilteredError, InvalidAnswerError, RequestRefusedError
from penstock.types import DataType

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
_TOKEN = {"token": DataType.string(), "logprob": DataType.float64()}
LOGPROBS = DataType.list(DataType.struct({**_TOKEN, "top_logprobs": DataType.list(DataType.struct(_TOKEN))}))


@dataclass(frozen=True)
class PromptSettings:
    """The arguments of ``prompt`` that all rows share."""

    provider: str = ""
    system: str | None = None
    output: OutputFormat | None = None
    tools: tuple[ToolFunction, ...] = ()
    num_answers: int | None = None  # None means one answer, and a value that is not a list
    has_usage: bool = False
    max_reasks: int = 1
    max_tool_rounds: int = 10
    price: Mapping[str, float] | None = None  # set by the user
    is_batch: bool = False  # calls go through the provider's batch API, at its price
    row_options: tuple[str, ...] = ()  # names of options that are columns; their values come after the message's
    has_logprobs: bool = False
    takes_cache_control: bool = True  # the model does

    @property
    def dtype(self) -> DataType:
        value = DataType.string() if self.output is None else self.output.dtype
        if not self.has_bare_value:
            usage = USAGE if self.has_usage else {}
            value = DataType.struct({"value": value, **usage, **({"logprobs": LOGPROBS} if self.has_logprobs else {})})
        return value if self.num_answers is None else DataType.list(value)

    @property
    def has_bare_value(self) -> bool:
        """True if the result of a row is its value, not a struct that holds it."""
        return not (self.has_usage or self.has_logprobs)

    def request(
        self,
        message: Message,
        options: Mapping[str, Any] | None = None,
        row_id: bytes | None = None,
        key: bytes | None = None,
    ) -> Request:
        """Return the request of a row. The row's own system message and options take precedence.

        If the column holds lists, ``n`` among the options is the number of answers for this row.
        """
        if not self.takes_cache_control and message.has_cache_control:
            raise RequestRefusedError(
                f"prompt: a message has 'cache_control', which provider {self.provider!r} does not take; leave it out, "
                "or use provider 'anthropic'."
            )
        system, num_answers = self.system, self.num_answers or 1
        if options:
            options = dict(options)
            num_answers = options.pop("n", num_answers)
            system = options.pop("system_message", system)
        system = system if message.system is None else message.system
        return Request(
            message.turns, system, self.output, self.tools, num_answers, options, row_id, key, message.system_parts
        )

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any] | None]:
        """Return the message of a row and its own options. A null option means the default."""
        if not (count := len(self.row_options)):
            return values, None
        pairs = zip(self.row_options, values[-count:], strict=True)
        return values[:-count], {name: value for name, value in pairs if value is not None}


class Exchange:
    """The state of one conversation. ``request`` is the next request to send; None once the value is known."""

    def __init__(self, settings: PromptSettings, request: Request) -> None:
        self.request: Request | None = request
        self.value: Any = None
        self.to_run: tuple[ToolCall, ...] = ()
        self._settings = settings
        self._last_request = request
        self._answers: list[Generation] = []
        self._results: list[ToolResult] = []
        self._num_reasks = 0
        self._num_rounds = 0

    @property
    def is_done(self) -> bool:
        return self.request is None and not self.to_run

    def take(self, answer: Generation) -> None:
        """Process an answer: it is the value, or it calls tools, or the next request asks for another answer."""
        self._answers.append(answer)
        if answer.tool_calls and self._last_request.tools:
            self._num_rounds += 1
            if self._num_rounds > self._settings.max_tool_rounds:
                raise InvalidAnswerError(
                    f"the model called tools in {self._settings.max_tool_rounds} rounds without an answer; "
                    "set max_tool_rounds= to allow more"
                )
            self.to_run, self.request = answer.tool_calls, None
            return
        if answer.refusal:
            raise ContentFilteredError(f"the model declined to answer: {answer.refusal}")
        self.to_run = ()
        if answer.tool_calls:
            self._end_with_calls(answer)
            return
        if not answer.text and answer.finish_reason == "length":
            raise InvalidAnswerError(
                "the model reached the maximum output before it wrote any text, as reasoning models may; raise "
                "max_output_tokens=, or reduce reasoning="
            )
        try:
            output = self._settings.output
            self.value = answer.text if output is None else output.parse(answer.text)
            self.request = None
        except InvalidAnswerError as exc:
            self._ask_again(answer, exc)

    def take_results(self, results: Sequence[ToolResult]) -> None:
        self._results += results
        self.to_run = ()
        self._continue(ToolTurn(tuple(results)))

    def result(self) -> Any:
        """Return the value, in a struct with its usage and log-probabilities if the user asked for them."""
        settings, last = self._settings, self._answers[-1]
        if settings.has_bare_value:
            return self.value
        found = {"value": self.value, "logprobs": last.logprobs} if settings.has_logprobs else {"value": self.value}
        return {**found, **self._usage(last)} if settings.has_usage else found

    def _usage(self, last: Generation) -> dict[str, Any]:
        calls = [
            {"name": each.call.name, "arguments": each.call.arguments, "result": each.content} for each in self._results
        ]
        settings, known = self._settings, [each.usage for each in self._answers if each.usage is not None]
        usage = Usage(*map(sum, zip(*known, strict=True))) if known else None
        cost = cost_of(settings.provider, last.model, usage, price=settings.price, is_batch=settings.is_batch)
        return {
            **usage_fields(self._answers, cost),
            "tool_calls": calls + [{"name": c.name, "arguments": c.arguments, "result": None} for c in last.tool_calls],
            "reasoning": last.reasoning,
        }

    def _end_with_calls(self, answer: Generation) -> None:
        """End with calls of functions that are not in ``tool_functions``; ``usage`` shows them."""
        if not self._settings.has_usage:
            names = ", ".join(dict.fromkeys(call.name for call in answer.tool_calls))
            raise InvalidAnswerError(
                f"the model called {names} and gave no answer; pass the functions as tool_functions=, or set "
                "usage=True to get the calls in tool_calls"
            )
        self.value = answer.text or None if self._settings.output is None else None
        self.request = None

    def _ask_again(self, answer: Generation, error: InvalidAnswerError) -> None:
        if answer.finish_reason == "length":
            raise InvalidAnswerError(f"the answer was cut off; raise max_output_tokens=. {error}") from error
        if self._num_reasks >= self._settings.max_reasks:
            raise error
        self._num_reasks += 1
        complaint = f"{error}\nAnswer again, with JSON of the form that was asked for and nothing else."
        self._continue(UserTurn((Text(complaint),)))

    def _continue(self, turn: UserTurn | ToolTurn) -> None:
        """Reply to the last answer."""
        last, answer = self._last_request, self._answers[-1]
        said = ModelTurn(answer.text, answer.tool_calls, answer.raw)
        self._last_request = replace(last, turns=(*last.turns, said, turn), num_answers=1, key=None)
        self.request = self._last_request


def usage_fields(answers: Sequence[Generation], cost: float | None) -> dict[str, Any]:
    """Return the usage of the calls with these answers; None for a figure that is not known."""
    last, figures = answers[-1], ("input_tokens", "output_tokens", "cached_tokens")
    tokens = {name: total(answers, name) for name in figures}
    times = {"latency_s": total(answers, "latency_s"), "finish_reason": last.finish_reason}
    return {"model": last.model, **tokens, "cost": cost, **times}


def total(answers: Sequence[Generation], name: str) -> Any:
    """Return the sum of a field of answers, None if it is not known."""
    known = [value for answer in answers if (value := getattr(answer, name)) is not None]
    return sum(known) if known else None


async def run_tools(tools: Sequence[ToolFunction], calls: Sequence[ToolCall]) -> list[ToolResult]:
    """Run the tools that a model calls, concurrently. The model gets an error for a tool that does not exist."""
    known = {tool.name: tool for tool in tools}

    async def run(call: ToolCall) -> ToolResult:
        if call.name not in known:
            return ToolResult(call, f"there is no tool {call.name!r}; there are: {', '.join(known)}", is_error=True)
        return await known[call.name].run(call)

    return list(await asyncio.gather(*map(run, calls)))


def checked_answers(given: Any, num_answers: int, model: Prompter) -> Sequence[Generation]:
    """Return the answers that a model gave to a request. A text counts as an answer, and an answer as a list of one.

    Anything else is an error that names the class of the model, which the user may have written.
    """
    if isinstance(given, str | Generation):
        given = (given,)
    name = f"{type(model).__name__}.generate"
    if not isinstance(given, list | tuple):
        raise InvalidAnswerError(f"{name} returned {type_name(given)} for a request; {_EXPECTED}")
    if len(given) < num_answers:
        raise InvalidAnswerError(f"{name} returned {len(given)} answers; request.num_answers is {num_answers}")
    answers = [Generation(each) if isinstance(each, str) else each for each in given[:num_answers]]
    for answer in answers:
        if not isinstance(answer, Generation):
            raise InvalidAnswerError(f"{name} returned {type_name(answer)} among its answers; {_EXPECTED}")
        if not isinstance(answer.text, str):
            raise InvalidAnswerError(
                f"{name} returned Generation({type_name(answer.text)}); the text must be a str. If there is no answer, "
                "raise an error or set refusal="
            )
    return answers


_EXPECTED = "return a list of Generation, request.num_answers of them"


def type_name(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
