"""Tools: Python functions that a model may call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.conversation import ToolCall, ToolResult
from penstock.ai.structured.answers import describe_problems, without_nulls
from penstock.ai.structured.return_formats import portable, schema_generator
from penstock.ai.structured.strict import optional_properties
from penstock.errors import FatalError, InvalidArgumentError
from penstock.udf.decorators import Func

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_ERROR_CHARS = 500


@dataclass(frozen=True)
class ToolFunction:
    """A Python function as a tool of a model."""

    name: str
    description: str
    schema: dict[str, Any]  # JSON schema of its arguments
    function: Callable[..., Any]
    hints: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # resolved in the driver

    @staticmethod
    def of(function: Callable[..., Any]) -> ToolFunction:
        """Return the tool for a function, described by its name, docstring and type hints.

        Each parameter needs a hint with a JSON schema; ``Annotated[...]`` describes it.

        >>> from typing import Annotated
        >>> def weather(city: Annotated[str, "Where."], days: int = 1) -> str:
        ...     '''Forecast the weather.'''
        >>> ToolFunction.of(weather).schema["properties"]
        {'city': {'description': 'Where.', 'type': 'string'}, 'days': {'default': 1, 'type': 'integer'}}
        """
        if isinstance(function, ToolFunction):
            return function
        function = _python_function(function)
        name = _name_of(function)
        base = function.func if isinstance(function, functools.partial) else function
        _check_parameters(name, function)
        hints = _hints(name, base)
        return ToolFunction(name, inspect.getdoc(base) or "", _schema(name, function, hints), function, hints)

    async def run(self, call: ToolCall) -> ToolResult:
        """Call the function with the model's arguments. Errors, except FatalError, become results for the model.

        A function that is not async runs in a thread, so that it does not block other rows.
        """
        from pydantic_core import ValidationError

        try:
            args, kwargs = self._validated(call.arguments.strip() or "{}")
        except ValidationError as exc:
            problems = describe_problems(exc.errors(include_url=False, include_context=False))
            return ToolResult(call, f"The arguments of {self.name} are wrong: {problems}.", is_error=True)
        try:
            result = await _called(self.function, args, kwargs)
            return ToolResult(call, as_text(result))
        except FatalError:
            raise
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}".removesuffix(": ")
            return ToolResult(call, f"{self.name} failed: {reason[:_MAX_ERROR_CHARS]}", is_error=True)

    def _validated(self, arguments: str) -> Any:
        from pydantic_core import ValidationError

        try:
            return self._arguments.validate_json(arguments)
        except ValidationError as exc:
            repaired = without_nulls(arguments, exc, frozenset(optional_properties(self.schema)))
            if repaired is None:
                raise
            return self._arguments.validate_json(repaired)

    @functools.cached_property
    def _arguments(self) -> Any:
        from pydantic_core import SchemaValidator

        return SchemaValidator(_arguments_adapter(self.function, self.hints).core_schema["arguments_schema"])

    def __hash__(self) -> int:
        return hash((self.name, self.function))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_arguments"}


def tool_functions(functions: Iterable[Callable[..., Any]]) -> tuple[ToolFunction, ...]:
    """Return functions as tools. Refuse two tools of the same name."""
    if callable(functions) or isinstance(functions, str):
        raise InvalidArgumentError(f"tools takes a list of functions, got {functions!r}; put it in a list")
    tools = tuple(map(ToolFunction.of, functions))
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"tools has two functions named {name!r}; rename one of them")
    return tools


def as_text(result: Any) -> str:
    """Return the result of a tool as text for the model: a string unchanged, any other value as JSON.

    >>> as_text({"city": "Ulm", "tags": {"old"}})
    '{"city":"Ulm","tags":["old"]}'
    """
    import orjson

    if isinstance(result, str):
        return str(result)
    try:
        return orjson.dumps(result, _as_json, orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except orjson.JSONEncodeError:
        return str(result)


def _as_json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


async def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(_call, function, args, kwargs)
    return await result if inspect.isawaitable(result) else result


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as exc:  # asyncio cannot pass it on from a thread
        raise RuntimeError(f"StopIteration: {exc}") from exc


def _python_function(function: Any) -> Callable[..., Any]:
    if isinstance(function, Func):
        if function._spec.target.is_batch:
            raise InvalidArgumentError(
                f"tools: {function._spec.name} takes batches; "
                "give a function of single values, since a model calls a tool with one value per parameter"
            )
        plain: Callable[..., Any] = function._function
        return plain
    if inspect.isclass(function) or not callable(function):
        raise InvalidArgumentError(f"tools takes Python functions; got {function!r}")
    return function  # type: ignore[no-any-return]


def _name_of(function: Callable[..., Any]) -> str:
    base = function.func if isinstance(function, functools.partial) else function
    name = str(getattr(base, "__name__", type(base).__name__))
    if name == "<lambda>":
        raise InvalidArgumentError("tools: a lambda has no name; use def")
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"tools: {name!r} is not a valid tool name; use up to 64 letters, digits, '_' and '-'"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgumentError(f"tools: {name} is a generator; a tool returns one result")
    return name


def _schema(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError

    try:
        schema: dict[str, Any] = _arguments_adapter(function, hints).json_schema(schema_generator=schema_generator())
        return schema
    except (PydanticUserError, NameError) as exc:
        raise InvalidArgumentError(
            f"tools: the hints of {name} have no JSON schema: {str(exc).splitlines()[0]}"
        ) from exc


def _arguments_adapter(function: Callable[..., Any], hints: dict[str, Any]) -> Any:
    """Return pydantic's adapter for calls of a function, with the hints that the driver resolved."""
    from pydantic import ConfigDict, TypeAdapter

    stub: Any = lambda: None  # noqa: E731
    stub.__signature__ = inspect.signature(function)
    stub.__annotations__ = hints
    return TypeAdapter(stub, config=ConfigDict(arbitrary_types_allowed=True))


def _check_parameters(name: str, function: Callable[..., Any]) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidArgumentError(
                f"tools: {name} takes '{parameter}', which a model cannot pass; use named parameters"
            )
        if parameter.annotation is parameter.empty:
            raise InvalidArgumentError(
                f"tools: parameter {parameter.name!r} of {name} has no type hint; write it as `{parameter.name}: str`"
            )


def _hints(name: str, base: Callable[..., Any]) -> dict[str, Any]:
    if not (inspect.isfunction(base) or inspect.ismethod(base) or inspect.isbuiltin(base)):
        base = type(base).__call__
    try:
        hints = typing.get_type_hints(base, include_extras=True)
    except NameError as exc:
        raise InvalidArgumentError(
            f"tools: the type hints of {name} cannot be read: {exc}; define what they name at module level"
        ) from exc
    # A string in Annotated[str, "..."] describes the parameter.
    return {key: _with_described(hint) for key, hint in hints.items()}


def _with_described(hint: Any) -> Any:
    from pydantic import Field

    if typing.get_origin(hint) is not typing.Annotated:
        return portable(hint) if typing.is_typeddict(hint) else hint
    base, *extras = typing.get_args(hint)
    fields = [Field(description=extra) if isinstance(extra, str) else extra for extra in extras]
    return typing.Annotated[(base, *fields)]
