"""Reading what a model wrote: find the JSON, check it, and turn it into plain values of a type."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import InvalidAnswerError
from penstock.types import DataType
from penstock.types.hints import is_pydantic_model

Reader = Callable[[Any], Any]

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)\n?\s*```", re.DOTALL)
_OBJECT = re.compile(r'\{\s*["}]')
_DECODER = json.JSONDecoder()
_MAX_PROBLEMS = 5
_MAX_INPUT_CHARS = 60


class AnswerReader:
    """Turns what a model wrote into a plain value.

    ``check`` is a validator of pydantic and ``read`` makes plain what it gives. ``optional`` are the properties that
    may be left out. ``whole`` puts the object around an answer that lacks it, or returns None.
    """

    def __init__(
        self, check: Any, read: Reader, optional: frozenset[str], whole: Callable[[str], str | None] | None = None
    ) -> None:
        from pydantic_core import ValidationError

        self._check = check.validate_json
        self._read = read
        self._optional = optional
        self._whole = whole
        self._invalid = ValidationError

    def __call__(self, text: str) -> Any:
        """Return the plain value of an answer, or raise InvalidAnswerError."""
        try:
            return self._read(self._check(text))
        except self._invalid as exc:
            return self._mended(text, exc)
        except MisfitError as exc:
            raise _misfit(exc) from None

    def _mended(self, text: str, error: Any) -> Any:
        """Return the value of an answer that is not right as it stands; ``error`` says why it is not."""
        found = json_within(text)
        if found is not None and found != text:
            value, error = self._tried(found)
            if error is None:
                return value
        if self._whole is not None and (found := self._whole(text) or found) is not None:
            value, error = self._tried(found)
            if error is None:
                return value
        if (found := without_nulls(found or text, error, self._optional)) is not None:
            value, still_wrong = self._tried(found)
            if still_wrong is None:
                return value
        raise InvalidAnswerError(_in_words(error))

    def _tried(self, text: str) -> tuple[Any, Any]:
        """Return the plain value of JSON and None, or None and what is wrong with it."""
        try:
            return self._read(self._check(text)), None
        except self._invalid as exc:
            return None, exc
        except MisfitError as exc:
            raise _misfit(exc) from None


def _misfit(error: Exception) -> InvalidAnswerError:
    return InvalidAnswerError(f"The answer does not fit: {error}.")


def json_within(text: str) -> str | None:
    """Return the one JSON object that stands in a code fence or amid prose; None where there is none, or several.

    >>> json_within('Sure! {"a": 1} Anything else?')
    '{"a": 1}'
    """
    text = text.rpartition("</think>")[2].strip()
    if len(fenced := _FENCE.findall(text)) == 1:
        return str(fenced[0])
    if text[:1] in ("{", "["):
        # It is all there is, whole or cut off: what stands inside of it is not the answer.
        return text[: _end_of_json(text, 0)] or None
    found: set[str] = set()
    at = 0
    while match := _OBJECT.search(text, at):
        if not (at := _end_of_json(text, match.start())):
            return None
        found.add(text[match.start() : at])
    return found.pop() if len(found) == 1 else None


def _end_of_json(text: str, start: int) -> int:
    """Return where the JSON that begins at ``start`` ends; 0 where it is broken or cut off."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return 0


def without_nulls(text: str, error: Any, optional: frozenset[str]) -> str | None:
    """Return JSON less the nulls that ``error`` complains about; None where it complains of anything else.

    In strict mode nothing may be left out, so null is how a model leaves out a field that has a default.
    """
    import orjson

    problems = error.errors(include_url=False, include_context=False)
    if not all(problem["input"] is None and problem["loc"] and problem["loc"][-1] in optional for problem in problems):
        return None
    try:
        value = orjson.loads(text)
        for place in {problem["loc"] for problem in problems}:
            parent = value
            for step in place[:-1]:
                parent = parent[step]
            del parent[place[-1]]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return None
    return orjson.dumps(value).decode()


# --- what is wrong, in words ------------------------------------------------------------------------------------------


def _in_words(error: Any) -> str:
    problems = error.errors(include_url=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        return f"The answer is not one JSON object: {problems[0]['msg'].removeprefix('Invalid JSON: ')}."
    return f"The answer does not have the form that was asked for: {problems_in_words(problems)}."


def problems_in_words(problems: list[Any]) -> str:
    """Return what pydantic found wrong as one short line: the place, what is allowed there, and what was found."""
    told = [_problem(problem) for problem in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _problem(problem: Mapping[str, Any]) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"]).lstrip(".")
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    found = "" if problem["type"] == "missing" else f" (got {_shortened(problem['input'])})"
    return f"{place}: {message}{found}" if place else f"{message}{found}"


def _shortened(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_INPUT_CHARS else text[: _MAX_INPUT_CHARS - 3] + "..."


# --- plain values -----------------------------------------------------------------------------------------------------


class MisfitError(ValueError):
    """A value is valid but does not fit its column, such as an integer past 64 bits."""


def plain_reader(dtype: DataType) -> Reader:
    """Return what turns a checked value into the plain form of ``dtype``: dicts, lists, and an enum as its value.

    A value that the column could not hold raises MisfitError, so that one answer cannot fail a batch of them.
    """
    if dtype.is_struct():
        return _struct_reader(dtype)
    if dtype.is_list() or dtype.is_embedding():
        item = plain_reader(dtype.inner)
        return lambda value: None if value is None else _items(value, item)
    if dtype.is_map():
        key, item = plain_reader(dtype.key), plain_reader(dtype.value)
        return lambda value: None if value is None else {key(k): item(v) for k, v in _row(value, ()).items()}
    for applies, reader in _LEAVES:
        if applies(dtype):
            return reader(dtype)
    return _plain


def _struct_reader(dtype: DataType) -> Reader:
    fields = {name: plain_reader(field) for name, field in dtype.fields.items()}
    # Most values are plain as they are: they are told by their class, without a call.
    readers = [(name, _EXACT.get(str(dtype.fields[name])), read) for name, read in fields.items()]
    names = tuple(fields)

    def read_struct(value: Any) -> Any:
        if value is None:
            return None
        get = (value if type(value) is dict else _row(value, names)).get
        try:
            return {name: v if type(v := get(name)) is exact else read(v) for name, exact, read in readers}
        except MisfitError:
            for name, _, read in readers:
                _placed(name, read, get(name))
            raise

    return read_struct


def _items(value: Any, read: Reader) -> list[Any]:
    items = list(value)
    try:
        return [read(item) for item in items]
    except MisfitError:
        for number, item in enumerate(items):
            _placed(f"[{number}]", read, item)
        raise


def _placed(place: str, read: Reader, value: Any) -> None:
    try:
        read(value)
    except MisfitError as exc:
        inner = str(exc)
        raise MisfitError(
            f"{place}{'' if inner.startswith('[') else '.' if _has_place(inner) else ': '}{inner}"
        ) from None


def _has_place(message: str) -> bool:
    return not message.startswith("the ")


def _row(value: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(zip(names, value, strict=False))
    # The dict of a model has its fields and no computed ones, by name and not by alias.
    row = getattr(value, "__dict__", None)
    return row if row is not None else {name: getattr(value, name, None) for name in names}


def _plain(value: Any) -> Any:
    """Return what has no type of its own as dicts, lists and scalars."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if is_pydantic_model(type(value)):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _text_reader(dtype: DataType) -> Reader:
    def read_text(value: Any) -> Any:
        if type(value) is str or value is None:
            return value
        return value.value if isinstance(value, enum.Enum) else str(value)

    return read_text


def _integer_reader(dtype: DataType) -> Reader:
    bits = dtype.arrow.bit_width
    low, high = (0, 2**bits) if str(dtype).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read_integer(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, enum.Enum):
            value = value.value
        if not low <= value < high:
            raise MisfitError(f"the number {_shortened(value)} does not fit {dtype}")
        return value

    return read_integer


def _decimal_reader(dtype: DataType) -> Reader:
    scale, whole = dtype.arrow.scale, dtype.arrow.precision - dtype.arrow.scale

    def read_decimal(value: Any) -> Any:
        if value is None:
            return None
        exact = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(getattr(value, "value", value)))
        if not exact.is_finite() or exact.adjusted() >= whole:
            raise MisfitError(f"the number {_shortened(value)} does not fit {dtype}")
        if _num_places(exact) > scale:
            raise MisfitError(f"the number {_shortened(value)} has more than {scale} decimal places")
        return exact

    return read_decimal


def _num_places(value: decimal.Decimal) -> int:
    """Return how many decimal places a number needs; arithmetic would round it to the context's precision first."""
    _, digits, exponent = value.as_tuple()
    trailing = next((count for count, digit in enumerate(reversed(digits)) if digit), len(digits))
    return -(int(exponent) + trailing)


def _timestamp_reader(dtype: DataType) -> Reader:
    is_local, is_nanos = dtype.timezone is None, dtype.unit == "ns"

    def read_timestamp(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        if is_nanos and not 1678 <= value.year <= 2261:
            raise MisfitError(f"the year {value.year} does not fit {dtype}")
        if value.tzinfo is not None:
            try:
                value = value.astimezone(datetime.UTC)
            except OverflowError:
                raise MisfitError(f"the time {value} does not fit {dtype}") from None
            return value.replace(tzinfo=None) if is_local else value
        return value if is_local else value.replace(tzinfo=datetime.UTC)

    return read_timestamp


def _duration_reader(dtype: DataType) -> Reader:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.unit]

    def read_duration(value: Any) -> Any:
        if value is not None and abs(value.total_seconds()) * per_second >= 2**63:
            raise MisfitError(f"the duration {value} does not fit {dtype}")
        return value

    return read_duration


def _scalar_reader(dtype: DataType) -> Reader:
    return lambda value: value.value if isinstance(value, enum.Enum) else value


_EXACT: dict[str, type] = {"string": str, "float64": float, "bool": bool, "date": datetime.date}

_LEAVES: tuple[tuple[Callable[[DataType], bool], Callable[[DataType], Reader]], ...] = (
    (DataType.is_string, _text_reader),
    (DataType.is_integer, _integer_reader),
    (DataType.is_decimal, _decimal_reader),
    (DataType.is_timestamp, _timestamp_reader),
    (DataType.is_duration, _duration_reader),
    (DataType.is_time, lambda _: lambda value: value if value is None else value.replace(tzinfo=None)),
    (DataType.is_float, _scalar_reader),
    (DataType.is_boolean, _scalar_reader),
)
