"""``return_format``: pydantic models, JSON schemas and types as the output format of a request."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.ai.structured.answers import AnswerReader, json_within
from penstock.ai.structured.json_schemas import (
    VALUE,
    checked_schema,
    schema_of_dtype,
    wrapped,
)
from penstock.ai.structured.strict import optional_properties, strict
from penstock.errors import InvalidArgumentError
from penstock.types import DataType
from penstock.types.hints import dtype_from_hint, is_alias, record_fields

_TAKES = "a pydantic model, a JSON schema (a dict), a DataType, or a Python type such as list[str] or Literal['a', 'b']"


@dataclass(frozen=True)
class OutputFormat:
    """A ``return_format``: the type of the column, the schema sent to the model, the parser of answers.

    Providers require an object at the top. For any other type, such as a list or an enum, the schema asks for
    ``{"value": ...}`` and ``parse`` returns the value. Equal formats make equal requests, which are sent once.
    """

    name: str
    dtype: DataType
    schema: dict[str, Any]
    source: Any = None  # the Python type that validates an answer; None: the schema does
    is_wrapped: bool = False

    @staticmethod
    def of(return_format: Any) -> OutputFormat:
        """Return the format for a pydantic model, a JSON schema, a DataType or a Python type.

        A type without a column type, such as ``dict[str, Any]`` or a recursive model, gives a column of Python
        objects.
        """
        if isinstance(return_format, OutputFormat):
            return return_format
        if isinstance(return_format, Mapping):
            return _of_schema(return_format)
        if isinstance(return_format, pa.DataType):
            return_format = DataType(return_format)
        if isinstance(return_format, DataType):
            schema, is_wrapped = wrapped(schema_of_dtype(_with_fields(return_format), "return_format"))
            return OutputFormat("answer", return_format, schema, None, is_wrapped)
        if isinstance(return_format, str) or not _is_hint(return_format):
            raise InvalidArgumentError(f"return_format takes {_TAKES}; got {return_format!r}")
        return _of_hint(return_format)

    @property
    def value_schema(self) -> dict[str, Any]:
        """The JSON schema of one value."""
        if not self.is_wrapped:
            return self.schema
        definitions = {name: part for name, part in self.schema.items() if name == "$defs"}
        return {**definitions, **self.schema["properties"][VALUE]}

    def strict_schema(self) -> dict[str, Any] | None:
        """Return the schema for OpenAI's strict mode, or None if strict mode cannot express it.

        Strict mode requires every property. Optional properties become nullable, and ``parse`` reads null as omitted.
        """
        return strict(self.schema)

    @functools.cached_property
    def named_schema(self) -> dict[str, Any]:
        """The schema with its name, as OpenAI's APIs take it: strict if possible."""
        strict_schema = self.strict_schema()
        return {"name": self.name, "schema": strict_schema or self.schema, "strict": strict_schema is not None}

    def parse(self, text: str) -> Any:
        """Return an answer as a plain value, or raise InvalidAnswerError with a message for the model.

        The answer may be in a code fence or surrounded by prose, and may have extra fields.
        """
        value = self._reader(text)
        return value[VALUE] if self.is_wrapped else value

    @functools.cached_property
    def _reader(self) -> AnswerReader:
        optional = frozenset(optional_properties(self.schema))
        return AnswerReader(_validator(self), optional, self._wrap if self.is_wrapped else None)

    def _wrap(self, text: str) -> str | None:
        """Put a bare value into the object that the schema asks for."""
        import orjson

        text = text.rpartition("</think>")[2].strip()
        # Malformed or truncated JSON is not an answer in plain text.
        if self.dtype.is_string() and text and text != "null" and text[0] not in '{["`':
            return orjson.dumps({VALUE: text}).decode()
        try:
            value = orjson.loads(json_within(text) or text)
        except orjson.JSONDecodeError:
            return None
        if isinstance(value, dict) and VALUE in value:
            return None
        return orjson.dumps({VALUE: value}).decode()

    def __hash__(self) -> int:
        return hash((self.name, self.dtype))

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name != "_reader"}
        return {**state, "source": portable(self.source)}


def _is_hint(value: Any) -> bool:
    return isinstance(value, type | typing.NewType) or typing.get_origin(value) is not None or is_alias(value)


def _of_schema(given: Mapping[str, Any]) -> OutputFormat:
    from penstock.ai.structured.validator import read_schema

    name, schema = checked_schema(given)
    dtype = _with_fields(read_schema(schema).dtype)  # refuses an unsupported schema now, not in a worker
    schema, is_wrapped = wrapped(schema)
    return OutputFormat(_provider_name(name), dtype, schema, None, is_wrapped)


def _of_hint(hint: Any) -> OutputFormat:
    schema = _schema_of_hint(hint)
    is_wrapped = schema.get("type") != "object" or "properties" not in schema
    if is_wrapped:
        schema = {key: part for key, part in _schema_of_hint(_value_type(hint)).items() if key != "title"}
    name = getattr(hint, "__name__", "answer") if record_fields_of(hint) else "answer"
    return OutputFormat(_provider_name(name), _with_fields(dtype_from_hint(hint)), schema, hint, is_wrapped)


def _with_fields(dtype: DataType) -> DataType:
    if dtype.is_struct() and not dtype.fields:
        raise InvalidArgumentError("return_format has no fields; add the fields that the model should fill in")
    return dtype


def record_fields_of(hint: Any) -> dict[str, Any] | None:
    return record_fields(hint) if isinstance(hint, type) and typing.get_origin(hint) is None else None


def _provider_name(name: str) -> str:
    """Return a name that providers accept: up to 64 letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64] or "answer"


def _validator(output: OutputFormat) -> Any:
    from pydantic_core import SchemaValidator

    from penstock.ai.structured.validator import read_schema

    if output.source is None:
        return SchemaValidator(read_schema(output.schema).core)
    return _adapter(_value_type(output.source) if output.is_wrapped else output.source).validator


def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(portable(hint))


def _value_type(hint: Any) -> Any:
    from typing_extensions import TypedDict

    return TypedDict("Answer", {VALUE: portable(hint)})  # type: ignore[operator]


def _schema_of_hint(hint: Any) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError
    from pydantic_core import PydanticCustomError, SchemaError

    try:
        schema = _adapter(hint).json_schema(schema_generator=schema_generator())
    except (PydanticUserError, PydanticCustomError, SchemaError, NameError, TypeError) as exc:
        reason = str(exc).splitlines()[0]
        raise InvalidArgumentError(
            f"return_format: {getattr(hint, '__qualname__', hint)} has no JSON schema ({reason}); "
            "use text, numbers, booleans, enums, dates, lists, or models of these"
        ) from exc
    return _without_root_ref(schema)


@functools.cache
def schema_generator() -> Any:
    """Return pydantic's generator of JSON schemas without field titles, which only cost tokens."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Generator


def _without_root_ref(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the top, which recursive models have, by its target."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema


def portable(hint: Any, _seen: tuple[Any, ...] = ()) -> Any:
    """Return a hint that pydantic can read in any process.

    Before Python 3.12 pydantic accepts only the TypedDicts of typing_extensions. A worker has another ``__main__``, so
    a class of ``__main__`` cannot resolve hints there that are strings. Its copy has resolved hints. A recursive field
    of a copy takes any value.
    """
    if hint in _seen:
        return Any
    if typing.is_typeddict(hint):
        from typing_extensions import TypedDict

        # With annotations as strings, only these hints carry Required and NotRequired.
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {
            name: _typeddict_field(field, name in hint.__required_keys__, (*_seen, hint))
            for name, field in hints.items()
        }
        return TypedDict(hint.__name__, fields)  # type: ignore[operator]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and not hasattr(hint, "__pydantic_fields__"):
        return _portable_dataclass(hint, (*_seen, hint)) if _travels_by_value(hint) else hint
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    parts = tuple(portable(arg, _seen) for arg in args)
    if parts == args:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[parts]  # noqa: UP007
    return hint.copy_with(parts) if hasattr(hint, "copy_with") else origin[parts]


def _travels_by_value(cls: type) -> bool:
    """Return whether cloudpickle sends the class itself, and not its name: always, or because the user asked for it."""
    from cloudpickle import list_registry_pickle_by_value

    parts = cls.__module__.split(".")
    modules = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    is_sent = "__main__" in modules or "<locals>" in cls.__qualname__
    return is_sent or not modules.isdisjoint(list_registry_pickle_by_value())


def _typeddict_field(hint: Any, is_required: bool, seen: tuple[Any, ...]) -> Any:
    if (origin := typing.get_origin(hint)) in (typing.Required, typing.NotRequired):
        hint, is_required = typing.get_args(hint)[0], origin is typing.Required
    hint = portable(hint, seen)
    return hint if is_required else typing.NotRequired[hint]


def _portable_dataclass(cls: Any, seen: tuple[Any, ...]) -> Any:
    from pydantic.dataclasses import dataclass as pydantic_dataclass

    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[Any] = []
    for field in dataclasses.fields(cls):
        given = {name: getattr(field, name) for name in ("default", "default_factory", "kw_only")}
        fields.append((field.name, portable(hints[field.name], seen), dataclasses.field(**given)))
    rules = {"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {}
    # The MISSING marker of dataclasses cannot be pickled; a pydantic dataclass does not need it.
    return pydantic_dataclass(dataclasses.make_dataclass(cls.__name__, fields, namespace=rules))
