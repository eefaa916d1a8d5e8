"""Check JSON schemas, and write the JSON schemas of column types. ``validator`` reads schemas.

Unsupported keywords are refused when the plan is built: ignoring one would accept answers that the schema forbids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.types import DataType

VALUE = "value"
"""The only property of the object that wraps an answer of another JSON type."""

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
UNSUPPORTED = ("not", "if", "patternProperties", "prefixItems", "dependentSchemas", "dependentRequired", "contains")
_KNOWN = {
    *("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "additionalProperties"),
    *("title", "description", "required", "format", "default", "examples", "$defs"),
}
_SHAPES: dict[str, tuple[Any, str]] = {
    "type": (str | list, "the name of a type, or a list of them"),
    "properties": (Mapping, "a dict of schemas"),
    "required": (list, "a list of names"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), (list, "a list of schemas")),
    "enum": (list, "a list of values"),
}
_ABSENT = object()

Json = Mapping[str, Any]


def checked_schema(given: Json) -> tuple[str, dict[str, Any]]:
    """Return the name and a copy of a JSON schema, without OpenAI's wrapper around it."""
    import orjson

    try:
        schema = orjson.loads(orjson.dumps(dict(given)))
    except orjson.JSONEncodeError as exc:
        raise InvalidArgumentError(
            f"return_format: the dict is not a JSON schema ({exc}); for Python types use a pydantic model or TypedDict"
        ) from exc
    if schema.get("type") == "json_schema":
        schema = schema.get("json_schema", schema)
    name = schema.get("name") or schema.get("title") or "answer"
    if isinstance(schema.get("schema"), dict):
        schema = schema["schema"]
        name = name if name != "answer" else schema.get("title") or name
    if schema and not _KNOWN & schema.keys():
        raise InvalidArgumentError(
            f"return_format: a dict must be a JSON schema, and {given!r} is not one; an example is "
            "{'type': 'object', 'properties': {'label': {'type': 'string'}}, 'required': ['label']}"
        )
    return str(name), schema


def wrapped(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema with an object at the top, and True if this function added the object."""
    if _is_record(schema):
        return {"type": "object", **schema}, False
    if (ref := schema.get("$ref")) and ref != "#":
        target = resolve_reference(schema, ref, "return_format")
        if _is_record(target):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return {"type": "object", **target, **beside}, False
    if '"$ref": "#"' in json.dumps(schema):  # "#" would then mean the added object
        raise InvalidArgumentError(
            "return_format: $ref '#' points to a schema that is not an object; put its target under '$defs'"
        )
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {VALUE: inner},
        "required": [VALUE],
        "additionalProperties": False,
        **definitions,
    }, True


def _is_record(schema: Json) -> bool:
    return "properties" in schema and schema.get("type", "object") == "object"


def resolve_reference(root: Json, ref: Any, place: str) -> Json:
    found: Any = root
    if not isinstance(ref, str) or not ref.startswith("#"):
        raise InvalidArgumentError(f"{place}: $ref {ref!r} points outside the schema; put its target under '$defs'")
    for step in ref.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        names = list(root.get("$defs", {}))
        raise InvalidArgumentError(
            f"{place}: $ref {ref!r} has no target in the schema; $defs has: {', '.join(names) or '(nothing)'}"
        )
    return found


def json_types(schema: Json, place: str) -> list[str]:
    """Return the JSON types that a schema allows. An empty list means any type."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or ())
    for name in kinds:
        if name not in _TYPES:
            raise InvalidArgumentError(
                f"{place}: {name!r} is not a JSON type; the types are: {', '.join(_TYPES)}."
                f"{did_you_mean(str(name), _TYPES)}"
            )
    if not kinds:
        implied = {"properties": "object", "additionalProperties": "object", "items": "array"}
        kinds = [kind for keyword, kind in implied.items() if keyword in schema][:1]
    return [*kinds, "null"] if schema.get("nullable") and kinds and "null" not in kinds else kinds


def normalized(schema: Any, place: str) -> Json:
    """Return a schema as a mapping, with an ``allOf`` of one schema merged in. Refuse unsupported keywords."""
    if schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise InvalidArgumentError(f"{place}: expected a JSON schema (a dict), got {schema!r}")
    for keyword, (kind, words) in _SHAPES.items():
        given = schema.get(keyword, _ABSENT)
        if given is not _ABSENT and (not isinstance(given, kind) or (given == [] and keyword != "required")):
            raise InvalidArgumentError(f"{place}: {keyword!r} must be {words}, got {given!r}")
    for keyword in UNSUPPORTED:
        if keyword in schema:
            raise InvalidArgumentError(f"{place}: the keyword {keyword!r} is not supported; use 'anyOf' or 'enum'")
    if "allOf" not in schema:
        return schema
    if len(schema["allOf"]) != 1:
        raise InvalidArgumentError(f"{place}: 'allOf' of several schemas is not supported; write them as one")
    beside = {key: value for key, value in schema.items() if key != "allOf"}
    return {**normalized(schema["allOf"][0], place), **beside}


def schema_of_dtype(dtype: DataType, place: str) -> dict[str, Any]:
    """Return the JSON schema of a column type. Every field of a struct is required and not null.

    >>> schema_of_dtype(DataType.list(DataType.bool()), "return_format")
    {'type': 'array', 'items': {'type': 'boolean'}}
    """
    if dtype.is_struct():
        fields = {name: schema_of_dtype(field, f"{place}.{name}") for name, field in dtype.fields.items()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if dtype.is_list() or dtype.is_embedding():
        items = {"type": "array", "items": schema_of_dtype(dtype.inner, f"{place}[]")}
        is_fixed = dtype.is_fixed_size_list() or dtype.is_embedding()
        return {**items, "minItems": dtype.size, "maxItems": dtype.size} if is_fixed else items
    if dtype.is_map() and dtype.key.is_string():
        return {"type": "object", "additionalProperties": schema_of_dtype(dtype.value, f"{place}.*")}
    if dtype.is_integer():
        return {"type": "integer", **_bounds(dtype)}
    for applies, schema in _DTYPE_SCHEMAS:
        if applies(dtype):
            return dict(schema)
    raise InvalidArgumentError(
        f"{place}: {dtype} has no JSON schema; use text, numbers, booleans, dates, or lists, maps with text "
        "as keys, and structs of these"
    )


def _bounds(dtype: DataType) -> dict[str, int]:
    bits, is_unsigned = dtype.arrow.bit_width, str(dtype).startswith("u")
    if is_unsigned:
        return {"minimum": 0} if bits == 64 else {"minimum": 0, "maximum": 2**bits - 1}
    return {} if bits == 64 else {"minimum": -(2 ** (bits - 1)), "maximum": 2 ** (bits - 1) - 1}


_DTYPE_SCHEMAS = (
    (DataType.is_boolean, {"type": "boolean"}),
    (DataType.is_float, {"type": "number"}),
    (DataType.is_decimal, {"type": "number"}),
    (DataType.is_string, {"type": "string"}),
    (DataType.is_timestamp, {"type": "string", "format": "date-time"}),
    (DataType.is_date, {"type": "string", "format": "date"}),
    (DataType.is_time, {"type": "string", "format": "time"}),
    (DataType.is_duration, {"type": "string", "format": "duration"}),
)
