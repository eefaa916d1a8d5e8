"""Python functions as tools: their schemas, and calls by the model."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import decimal
import enum
import functools
import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import cloudpickle
import numpy as np
import pytest
from pydantic import BaseModel, Field

import penstock as ps
from penstock.ai.conversation import ToolCall, ToolResult
from penstock.ai.structured.tools import ToolFunction, as_text, tool_functions
from penstock.errors import InvalidArgumentError


class Place(BaseModel):
    city: str
    country: str | None = None


def forecast(
    place: Place,
    json: Annotated[int, Field(description="How many days.", ge=1, le=7)] = 1,
    *,
    unit: Literal["C", "F"] = "C",
    note: Annotated[str | None, "For the reader."] = None,
) -> dict[str, Any]:
    """Say how the weather
    will be.

    Args:
        place (Place): Where: a town
            and its country.
        unit: Of temperatures.

    Returns:
        note: this is no parameter.
    """
    return {"city": place.city, "days": json, "unit": unit, "note": note}


def run(function: Any, arguments: Any = None) -> ToolResult:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return asyncio.run(ToolFunction.of(function).run(ToolCall("1", "tool", text)))


def test_what_a_model_is_told() -> None:
    tool = ToolFunction.of(forecast)
    assert tool.name == "forecast"
    assert tool.description.startswith("Say how the weather\nwill be.\n\nArgs:\n    place (Place): Where: a town")
    assert tool.schema["required"] == ["place"]
    assert tool.schema["additionalProperties"] is False
    properties = tool.schema["properties"]
    assert properties["place"] == {"$ref": "#/$defs/Place"}
    assert properties["json"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "default": 1,
        "description": "How many days.",
    }
    assert properties["unit"] == {
        "type": "string",
        "enum": ["C", "F"],
        "default": "C",
    }
    assert properties["note"]["description"] == "For the reader."


def test_a_tool_without_words_or_parameters() -> None:
    def now() -> str:
        return "noon"

    tool = ToolFunction.of(now)
    assert (tool.description, tool.schema["properties"]) == ("", {})
    for arguments in ("", "{}", " "):
        assert run(now, arguments).content == "noon"


def test_arguments_are_what_the_hints_say() -> None:
    result = run(forecast, {"place": {"city": "Ulm"}, "json": 2})
    assert not result.is_error
    assert json.loads(result.content) == {"city": "Ulm", "days": 2, "unit": "C", "note": None}


def test_null_stands_for_the_default() -> None:
    result = run(forecast, {"place": {"city": "Ulm"}, "json": None, "unit": None, "note": None})
    assert json.loads(result.content) == {"city": "Ulm", "days": 1, "unit": "C", "note": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{", "The arguments of forecast are wrong: invalid JSON: EOF"),
        ("[]", "place: missing required argument"),
        ({}, "place: missing required argument"),
        ({"place": {}}, r"place\.city: field required"),
        ({"place": {"city": "Ulm"}, "unit": "K"}, r"unit: input should be 'C' or 'F' \(got \"K\"\)"),
        ({"place": {"city": "Ulm"}, "json": 9}, "json: input should be less than or equal to 7"),
        ({"place": {"city": "Ulm"}, "days": 1}, "days: unexpected keyword argument"),
        ({"place": None}, "place: "),
    ],
)
def test_wrong_arguments_are_told(arguments: Any, message: str) -> None:
    result = run(forecast, arguments)
    assert result.is_error
    assert re.search(message, result.content)


def test_failures_are_told() -> None:
    def fail(n: int) -> str:
        raise LookupError("no such number " + "x" * n)

    async def fail_later() -> str:
        raise TimeoutError

    def stop() -> str:
        raise StopIteration("3")

    assert run(fail, {"n": 0}) == ToolResult(
        ToolCall("1", "tool", '{"n": 0}'), "fail failed: LookupError: no such number ", is_error=True
    )
    assert len(run(fail, {"n": 10_000}).content) < 600
    assert run(fail_later).content == "fail_later failed: TimeoutError"
    assert run(stop).content == "stop failed: RuntimeError: StopIteration: 3"


def test_a_tool_may_not_swallow_the_end() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(asyncio.CancelledError):
        run(cancelled)
    with pytest.raises(KeyboardInterrupt):
        run(interrupted)


def test_plain_functions_run_in_threads_with_the_context() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    both = threading.Barrier(2, timeout=60)

    def meet() -> str:
        both.wait()  # would never come back if it held up the loop
        return f"{who.get()} {threading.current_thread() is threading.main_thread()}"

    async def two() -> list[ToolResult]:
        who.set("me")
        tool = ToolFunction.of(meet)
        return list(await asyncio.gather(*(tool.run(ToolCall(id, "meet", "")) for id in "12")))

    assert [result.content for result in asyncio.run(two())] == ["me False", "me False"]


def test_async_functions_run_on_the_loop() -> None:
    async def here(loop: int) -> bool:
        return id(asyncio.get_running_loop()) == loop

    async def call() -> ToolResult:
        arguments = json.dumps({"loop": id(asyncio.get_running_loop())})
        return await ToolFunction.of(here).run(ToolCall("1", "here", arguments))

    assert asyncio.run(call()).content == "true"


def test_kinds_of_functions() -> None:
    class Shop:
        def price(self, item: str) -> int:
            """Say what it costs."""
            return len(item)

        async def __call__(self, item: str) -> int:
            return 2 * len(item)

    @ps.func
    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    @ps.func
    async def triple(n: int) -> int:
        return 3 * n

    def power(base: int, exponent: int) -> int:
        return base**exponent

    assert run(Shop().price, {"item": "tea"}).content == "3"
    assert ToolFunction.of(Shop().price).description == "Say what it costs."
    assert run(Shop(), {"item": "tea"}).content == "6"
    assert ToolFunction.of(Shop()).name == "Shop"
    assert run(double, {"n": 2}).content == "4"
    assert ToolFunction.of(double).description == "Double it."
    assert run(triple, {"n": 2}).content == "6"
    assert run(functools.partial(power, exponent=3), {"base": 2}).content == "8"


@ps.func.batch(return_dtype=ps.DataType.int64())
def doubled(n: Any) -> Any:
    return n


def several() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "a lambda has no name"),
        (3, "tools takes Python functions; got 3"),
        (Place, "tools takes Python functions; got <class"),
        (doubled, "doubled takes batches"),
        (several, "several is a generator"),
        (print, r"print takes '\*args"),
    ],
)
def test_what_is_no_tool(function: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ToolFunction.of(function)


def test_parameters_that_no_model_can_be_told_of() -> None:
    def bare(x):  # type: ignore[no-untyped-def]
        return x

    def positional(x: int, /) -> int:
        return x

    def rest(**more: int) -> int:
        return len(more)

    def opaque(lock: threading.Event) -> None: ...

    class Local(BaseModel):
        n: int

    def hidden(local: Local) -> None: ...

    for function, message in (
        (bare, "parameter 'x' of bare has no type hint.*write it as `x: str`"),
        (positional, "positional takes 'x: "),
        (rest, r"rest takes '\*\*more: "),
        (hidden, "the type hints of hidden cannot be read: name 'Local' is not defined"),
        (opaque, "the hints of opaque have no JSON schema"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            ToolFunction.of(function)


def test_lists_of_tools() -> None:
    def other() -> None: ...

    assert [tool.name for tool in tool_functions([forecast, other])] == ["forecast", "other"]
    with pytest.raises(InvalidArgumentError, match="two functions named 'forecast'"):
        tool_functions([forecast, forecast])
    with pytest.raises(InvalidArgumentError, match="tools takes a list of functions"):
        tool_functions(forecast)  # type: ignore[arg-type]


def test_tools_travel_and_compare() -> None:
    class Local(BaseModel):
        n: int

    def total(items: Any, scale: float = 1.0) -> float:
        return sum(item.n for item in items) * scale

    total.__annotations__["items"] = list[Local]  # in this file it would be a text that nobody can look up
    tool = ToolFunction.of(total)
    assert tool == ToolFunction.of(total)
    assert hash(tool) == hash(ToolFunction.of(total))
    assert tool != ToolFunction.of(forecast)
    asyncio.run(tool.run(ToolCall("1", "total", '{"items": []}')))
    arrived = cloudpickle.loads(cloudpickle.dumps(tool))
    result = asyncio.run(arrived.run(ToolCall("1", "total", '{"items": [{"n": 2}, {"n": 3}]}')))
    assert result.content == "5.0"


SCRIPT = """
from __future__ import annotations
import sys, typing, cloudpickle
from pydantic import BaseModel
from penstock.ai.structured.tools import ToolFunction

class Place(BaseModel):
    city: str

class Options(typing.TypedDict, total=False):
    days: int

def forecast(place: Place, options: Options = {}):
    return place.city + str(options)

sys.stdout.buffer.write(cloudpickle.dumps(ToolFunction.of(forecast)))
"""


def test_tools_of_a_script_travel() -> None:
    written = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True).stdout
    call = ToolCall("1", "forecast", '{"place": {"city": "Ulm"}, "options": {"days": 2}}')
    assert asyncio.run(cloudpickle.loads(written).run(call)).content == "Ulm{'days': 2}"


@dataclasses.dataclass
class Box:
    n: int


class Colour(enum.Enum):
    RED = "red"


class Odd:
    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        ({1: "x"}, '{"1":"x"}'),
        (Place(city="Ulm"), '{"city":"Ulm","country":null}'),
        ([Box(1)], '[{"n":1}]'),
        (Colour.RED, '"red"'),
        (np.array([1, 2]), "[1,2]"),
        ({"a": {1}}, '{"a":[1]}'),
        (b"ab", '"ab"'),
        (decimal.Decimal("1.5"), '"1.5"'),
        (uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (Odd(), '"odd"'),
        (2**70, str(2**70)),
    ],
)
def test_results_as_text(result: Any, text: str) -> None:
    assert as_text(result) == text
