"""The form an answer must have: from a pydantic model, a JSON schema or a type, to a schema that providers take."""

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

from penstock.ai.structured.answers import AnswerReader, json_within, plain_reader
from penstock.ai.structured.json_schemas import (
    VALUE,
    checked_schema,
    core_schema_of,
    dtype_of_schema,
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
    """What ``return_format`` means: the type of the column, the schema that the model is shown, how to read an answer.

    Providers want an object at the top. Where the format is something else, such as a list or one of some words, the
    schema asks for ``{"value": ...}``, and ``parse`` takes the value out again: nobody else needs to know.

    Two formats are equal when they ask for the same and check it by the same class, so equal calls can be merged.
    """

    name: str
    dtype: DataType
    schema: dict[str, Any]
    source: Any = None  # the type that pydantic checks an answer by; None: the schema itself says it
    is_wrapped: bool = False

    @staticmethod
    def of(return_format: Any) -> OutputFormat:
        """Return the format for a pydantic model, a JSON schema, a DataType or a Python type.

        A value without a column type, such as ``dict[str, Any]`` or a model that contains itself, is a column (or a
        field) of Python objects.
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

    def strict_schema(self) -> dict[str, Any] | None:
        """Return the schema as OpenAI's strict mode wants it; None where it cannot be said there.

        Every property is required there. One that may be left out is nullable instead, and ``parse`` takes null for it.
        """
        return strict(self.schema)

    @functools.cached_property
    def named_schema(self) -> dict[str, Any]:
        """The schema as OpenAI's protocols want it, with its name: strict where it can be."""
        strict_form = self.strict_schema()
        schema = self.schema if strict_form is None else strict_form
        return {"name": self.name, "schema": schema, "strict": strict_form is not None}

    def parse(self, text: str) -> Any:
        """Return an answer as a plain value of ``dtype``, or raise InvalidAnswerError in words that help the model.

        The answer may stand in a code fence or amid prose, and may have fields that nobody asked for.
        """
        return self._reader(text)

    @functools.cached_property
    def _reader(self) -> AnswerReader:
        """Built where it is used first, for it does not travel."""
        optional = frozenset(optional_properties(self.schema))
        if not self.is_wrapped:
            return AnswerReader(_validator(self), plain_reader(self.dtype), optional)
        read = plain_reader(DataType.struct({VALUE: self.dtype}))
        return AnswerReader(_validator(self), lambda value: read(value)[VALUE], optional, self._whole)

    def _whole(self, text: str) -> str | None:
        """Return an answer that is the value itself, not in its object, as the JSON that was asked for."""
        import orjson

        text = text.rpartition("</think>")[2].strip()
        # What was to be JSON, and is broken or cut off, is no text.
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
    name, schema = checked_schema(given)
    dtype = _with_fields(dtype_of_schema(schema))
    schema, is_wrapped = wrapped(schema)
    core_schema_of(schema)  # so that what cannot be checked is refused now
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
        raise InvalidArgumentError("return_format has no fields; give it those that the model is to fill in")
    return dtype


def record_fields_of(hint: Any) -> dict[str, Any] | None:
    """Return the fields of a class that is a record; None for whatever else a hint may be."""
    return record_fields(hint) if isinstance(hint, type) and typing.get_origin(hint) is None else None


def _provider_name(name: str) -> str:
    """Return a name as providers take it: letters, digits, ``_`` and ``-``, 64 of them."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64] or "answer"


def _validator(output: OutputFormat) -> Any:
    from pydantic_core import SchemaValidator

    if output.source is None:
        return SchemaValidator(core_schema_of(output.schema))
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
        place, culprit = _culprit(hint, "return_format")
        reason = str(exc).splitlines()[0]
        raise InvalidArgumentError(
            f"{place}: {_shown(culprit)} has no JSON form, so no model can be asked for it ({reason}); "
            "use text, numbers, booleans, enums, dates, lists, or models of these"
        ) from exc
    return _without_root_ref(schema)


def _shown(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)


def _culprit(hint: Any, place: str) -> tuple[str, Any]:
    """Return the innermost field that has no JSON schema, and its hint."""
    for name, field in (record_fields_of(hint) or {}).items():
        if not _has_schema(field):
            prefix = _shown(hint) if place == "return_format" else place
            return _culprit(field, f"{prefix}.{name}")
    for part in typing.get_args(hint):
        if _is_hint(part) and not _has_schema(part):
            return _culprit(part, place)
    return place, hint


def _has_schema(hint: Any) -> bool:
    try:
        _adapter(hint).json_schema(schema_generator=schema_generator())
    except Exception:  # whatever it is, this is where it comes from
        return False
    return True


@functools.cache
def schema_generator() -> Any:
    """Return pydantic's writer of JSON schemas, less what only costs tokens: the title that repeats a field's name."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Generator


def _without_root_ref(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose top is an object and no reference, as a model that contains itself has it."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema


def portable(hint: Any, _seen: tuple[Any, ...] = ()) -> Any:
    """Return a hint that pydantic reads wherever it arrives.

    Before Python 3.12 it takes only those TypedDicts that typing_extensions makes. And a class of ``__main__`` whose
    hints are texts cannot look them up in a worker, which has another ``__main__``: its copy has them looked up.
    A copy cannot contain itself; there it takes any value.
    """
    if hint in _seen:
        return Any
    if typing.is_typeddict(hint):
        from typing_extensions import TypedDict

        # Where annotations are texts, only these hints know of Required and NotRequired.
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {
            name: _typeddict_field(field, name in hint.__required_keys__, (*_seen, hint))
            for name, field in hints.items()
        }
        return TypedDict(hint.__name__, fields)  # type: ignore[operator]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and not hasattr(hint, "__pydantic_fields__"):
        is_found_by_name = hint.__module__ != "__main__" and "<locals>" not in hint.__qualname__
        return hint if is_found_by_name else _portable_dataclass(hint, (*_seen, hint))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    parts = tuple(portable(arg, _seen) for arg in args)
    if parts == args:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[parts]  # noqa: UP007
    return hint.copy_with(parts) if hasattr(hint, "copy_with") else origin[parts]


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
    # One of pydantic travels with all that was read from it: what dataclasses marks a missing default by does not.
    return pydantic_dataclass(dataclasses.make_dataclass(cls.__name__, fields, namespace=rules))
