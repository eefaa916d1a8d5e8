"""JSON schemas as types: the column for one, what checks values by one, and the one for a column type.

What is not understood is refused when the plan is built: a keyword that nobody checks would be a promise not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.types import DataType
from penstock.types.hints import merged_dtype

VALUE = "value"
"""The one property of the object around an answer that is no object itself."""

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_REFUSED = ("not", "if", "patternProperties", "prefixItems", "dependentSchemas", "dependentRequired", "contains")
_KNOWN = {
    *("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "additionalProperties"),
    *("title", "description", "required", "format", "default", "examples", "$defs", "definitions"),
}
_SHAPES: dict[str, tuple[Any, str]] = {
    "type": (str | list, "the name of a type, or a list of them"),
    "properties": (Mapping, "a dict of schemas"),
    "required": (list, "a list of names"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), (list, "a list of schemas")),
    "enum": (list, "a list of values"),
}
_FORMAT_DTYPES = {
    "date-time": DataType.timestamp("us", "UTC"),
    "date": DataType.date(),
    "time": DataType.time(),
    "duration": DataType.duration(),
}
_SCALAR_DTYPES = {
    "string": DataType.string(),
    "number": DataType.float64(),
    "integer": DataType.int64(),
    "boolean": DataType.bool(),
    "null": DataType.null(),
}
_ABSENT = object()

Json = Mapping[str, Any]


def checked_schema(given: Json) -> tuple[str, dict[str, Any]]:
    """Return the name and a copy of a JSON schema, also out of the wrapping that OpenAI's API has around one."""
    import orjson

    try:
        schema = orjson.loads(orjson.dumps(dict(given)))
    except orjson.JSONEncodeError as exc:
        raise InvalidArgumentError(
            f"return_format: the dict is no JSON schema ({exc}); for Python types use a pydantic model or TypedDict"
        ) from exc
    if schema.get("type") == "json_schema":
        schema = schema.get("json_schema", schema)
    name = schema.get("name") or schema.get("title") or "answer"
    if isinstance(schema.get("schema"), dict):
        schema = schema["schema"]
        name = name if name != "answer" else schema.get("title") or name
    if schema and not _KNOWN & schema.keys():
        raise InvalidArgumentError(
            f"return_format: a dict is read as a JSON schema, and {given!r} is none; such as "
            "{'type': 'object', 'properties': {'label': {'type': 'string'}}, 'required': ['label']}"
        )
    if "definitions" in schema:
        schema = _with_defs(schema)
    return str(name), schema


def _with_defs(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of an older draft with its definitions where today's have them."""
    import orjson

    text = orjson.dumps({("$defs" if key == "definitions" else key): value for key, value in schema.items()})
    renamed: dict[str, Any] = orjson.loads(text.replace(b'"$ref":"#/definitions/', b'"$ref":"#/$defs/'))
    return renamed


def wrapped(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema with an object at the top, and whether that object was put around it."""
    if _is_record(schema):
        return {"type": "object", **schema}, False
    if (ref := schema.get("$ref")) and ref != "#":
        target = _resolve(schema, ref, "return_format")
        if _is_record(target):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return {"type": "object", **target, **beside}, False
    for found in _references(schema):
        if not found.startswith("#/$defs/"):
            raise InvalidArgumentError(
                f"return_format: $ref {found!r} leads to a schema that is no object; put its target under '$defs'"
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


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _resolve(root: Json, ref: Any, place: str) -> Json:
    found: Any = root
    if not isinstance(ref, str) or not ref.startswith("#"):
        raise InvalidArgumentError(f"{place}: $ref {ref!r} leads out of the schema; put its target under '$defs'")
    for step in ref.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        names = list(root.get("$defs", {}))
        raise InvalidArgumentError(
            f"{place}: $ref {ref!r} names nothing in the schema; $defs has: {', '.join(names) or '(nothing)'}"
        )
    return found


def _kinds(schema: Json, place: str) -> list[str]:
    """Return the JSON types a schema allows; an empty list is any."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or ())
    for name in kinds:
        if name not in _TYPES:
            raise InvalidArgumentError(
                f"{place}: {name!r} is no type of JSON; there are: {', '.join(_TYPES)}."
                f"{did_you_mean(str(name), _TYPES)}"
            )
    if not kinds:
        implied = {"properties": "object", "additionalProperties": "object", "items": "array"}
        kinds = [kind for keyword, kind in implied.items() if keyword in schema][:1]
    return [*kinds, "null"] if schema.get("nullable") and kinds and "null" not in kinds else kinds


def _parts(schema: Any, place: str) -> Json:
    """Return a schema as a mapping, with a lone allOf taken apart; refuse what could not be checked."""
    if schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise InvalidArgumentError(f"{place}: expected a JSON schema (a dict), got {schema!r}")
    for keyword, (kind, words) in _SHAPES.items():
        given = schema.get(keyword, _ABSENT)
        if given is not _ABSENT and (not isinstance(given, kind) or (given == [] and keyword != "required")):
            raise InvalidArgumentError(f"{place}: {keyword!r} must be {words}, got {given!r}")
    for keyword in _REFUSED:
        if keyword in schema:
            raise InvalidArgumentError(
                f"{place}: the keyword {keyword!r} is not supported; say it by 'anyOf' or 'enum'"
            )
    if "allOf" not in schema:
        return schema
    if len(schema["allOf"]) != 1:
        raise InvalidArgumentError(f"{place}: 'allOf' of several schemas is not supported; write them as one")
    beside = {key: value for key, value in schema.items() if key != "allOf"}
    return {**_parts(schema["allOf"][0], place), **beside}


# --- the column -------------------------------------------------------------------------------------------------------


def dtype_of_schema(schema: Json) -> DataType:
    """Return the column type for values of a JSON schema; ``python`` where there is no one type, or any at all.

    >>> dtype_of_schema({"type": "array", "items": {"enum": ["a", "b"]}})
    list[string]
    """
    return _dtype(schema, schema, "return_format", ())


def _dtype(schema: Any, root: Json, place: str, seen: tuple[str, ...]) -> DataType:
    schema = _parts(schema, place)
    if ref := schema.get("$ref"):
        if ref in seen or ref == "#":
            return DataType.python()  # it contains itself
        return _dtype(_resolve(root, ref, place), root, place, (*seen, ref))
    if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
        return merged_dtype([_dtype(choice, root, place, seen) for choice in choices])
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return merged_dtype([DataType.from_hint(type(value)) for value in values])
    kinds = _kinds(schema, place)
    if not kinds:
        return DataType.python()
    return merged_dtype([_dtype_of_kind(kind, schema, root, place, seen) for kind in kinds])


def _dtype_of_kind(kind: str, schema: Json, root: Json, place: str, seen: tuple[str, ...]) -> DataType:
    if kind == "array":
        inner = _dtype(schema.get("items", True), root, f"{place}[]", seen)
        return DataType.list(inner)
    if kind == "object" and "properties" in schema:
        return DataType.struct(
            {name: _dtype(part, root, f"{place}.{name}", seen) for name, part in schema["properties"].items()}
        )
    if kind == "object":
        values = schema.get("additionalProperties", True)
        if not isinstance(values, Mapping):
            return DataType.python()
        return DataType.map(DataType.string(), _dtype(values, root, f"{place}.*", seen))
    if kind == "string":
        return _FORMAT_DTYPES.get(schema.get("format", ""), DataType.string())
    return _SCALAR_DTYPES[kind]


# --- the check --------------------------------------------------------------------------------------------------------


def core_schema_of(schema: Json) -> Any:
    """Return what pydantic's core checks values of a JSON schema by."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    builder = _CoreBuilder(schema)
    main = builder.node(schema, "return_format")
    result = core_schema.definitions_schema(main, list(builder.definitions.values())) if builder.definitions else main
    try:
        SchemaValidator(result)
    except SchemaError as exc:
        raise InvalidArgumentError(f"return_format: the JSON schema cannot be checked: {exc}") from exc
    return result


class _CoreBuilder:
    def __init__(self, root: Json) -> None:
        self.root = root
        self.definitions: dict[str, Any] = {}

    def node(self, schema: Any, place: str) -> Any:
        from pydantic_core import core_schema as cs

        schema = _parts(schema, place)
        if ref := schema.get("$ref"):
            return self.reference(ref, place)
        if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
            return cs.union_schema([self.node(choice, place) for choice in choices])
        if "enum" in schema or "const" in schema:
            return self.choice(schema["enum"] if "enum" in schema else [schema["const"]], place)
        kinds = _kinds(schema, place)
        parts = [self.kind(kind, schema, place) for kind in kinds if kind != "null"]
        if not parts:
            return cs.none_schema() if kinds else cs.any_schema()
        checked = parts[0] if len(parts) == 1 else cs.union_schema(parts)
        return cs.nullable_schema(checked) if "null" in kinds else checked

    def reference(self, ref: str, place: str) -> Any:
        from pydantic_core import core_schema as cs

        if ref not in self.definitions:
            self.definitions[ref] = None  # so that it may contain itself
            self.definitions[ref] = {**self.node(_resolve(self.root, ref, place), place), "ref": ref}
        return cs.definition_reference_schema(ref)

    def choice(self, values: Any, place: str) -> Any:
        from pydantic_core import core_schema as cs

        if not values or any(isinstance(value, dict | list) for value in values):
            raise InvalidArgumentError(f"{place}: an enum lists texts, numbers, booleans or null; got {values!r}")
        present = [value for value in values if value is not None]
        checked = cs.literal_schema(present) if present else cs.none_schema()
        return cs.nullable_schema(checked) if present and len(present) < len(values) else checked

    def kind(self, kind: str, schema: Json, place: str) -> Any:
        from pydantic_core import core_schema as cs

        if kind == "object" and "properties" in schema:
            return self.record(schema, place)
        if kind == "object":
            values = schema.get("additionalProperties", True)
            checked = self.node(values, f"{place}.*") if isinstance(values, Mapping) else cs.any_schema()
            return cs.dict_schema(cs.str_schema(), checked)
        if kind == "array":
            items = self.node(schema.get("items", True), f"{place}[]")
            return cs.list_schema(items, min_length=schema.get("minItems"), max_length=schema.get("maxItems"))
        if kind == "string":
            return _core_text(schema)
        if kind == "boolean":
            return cs.bool_schema()
        bounds = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
        limits: dict[str, Any] = {
            name: schema[keyword]
            for keyword, name in {**bounds, "multipleOf": "multiple_of"}.items()
            if keyword in schema
        }
        return cs.int_schema(**limits) if kind == "integer" else cs.float_schema(**limits)

    def record(self, schema: Json, place: str) -> Any:
        from pydantic_core import core_schema as cs

        required = schema.get("required", ())
        fields = {}
        for name, part in schema["properties"].items():
            checked = self.node(part, f"{place}.{name}")
            is_required = name in required
            # In strict mode nothing can be left out, so null says the same.
            fields[name] = cs.typed_dict_field(
                checked if is_required else cs.nullable_schema(checked), required=is_required
            )
        for name in required:
            if name not in fields:
                raise InvalidArgumentError(
                    f"{place}: 'required' names {name!r}, which is not under 'properties': {', '.join(fields)}."
                    f"{did_you_mean(name, fields)}"
                )
        return cs.typed_dict_schema(fields)


def _core_text(schema: Json) -> Any:
    from pydantic_core import core_schema as cs

    match schema.get("format"):
        case "date-time":
            return cs.datetime_schema()
        case "date":
            return cs.date_schema()
        case "time":
            return cs.time_schema()
        case "duration":
            return cs.timedelta_schema()
        case "uuid":
            return cs.uuid_schema()
        case _:
            lengths = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
            return cs.str_schema(pattern=schema.get("pattern"), regex_engine="python-re", **lengths)


# --- from a column type -----------------------------------------------------------------------------------------------


def schema_of_dtype(dtype: DataType, place: str) -> dict[str, Any]:
    """Return the JSON schema of the values of a column type: every field of a struct is required, and not null.

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
        f"{place}: no model can be asked for {dtype}; use text, numbers, booleans, dates, or lists, maps with text "
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
