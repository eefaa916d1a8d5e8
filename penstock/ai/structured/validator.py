"""Read a JSON schema once: the type of its column, and a validator of pydantic for its values.

Import this module late: pydantic takes long to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import SchemaError, SchemaValidator, core_schema as cs

from penstock.ai.structured.json_schemas import Json, json_types, normalized, resolve_reference
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.types import DataType
from penstock.types.hints import merged_dtype


class Checked(NamedTuple):
    """A JSON schema that was read: the core schema that validates its values, and the type of a column of them."""

    core: Any
    dtype: DataType


_FORMATS = {
    "date-time": Checked(cs.datetime_schema(), DataType.timestamp("us", "UTC")),
    "date": Checked(cs.date_schema(), DataType.date()),
    "time": Checked(cs.time_schema(), DataType.time()),
    "duration": Checked(cs.timedelta_schema(), DataType.duration()),
    "uuid": Checked(cs.uuid_schema(), DataType.string()),
}
_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}


def read_schema(schema: Json) -> Checked:
    """Read a JSON schema. The column is ``python`` if no single type holds its values.

    >>> read_schema({"type": "array", "items": {"enum": ["a", "b"]}}).dtype
    list[string]
    """
    reader = _Reader(schema)
    main = reader.node(schema, "return_format")
    definitions = [each.core for each in reader.definitions.values()]
    core = cs.definitions_schema(main.core, definitions) if definitions else main.core
    try:
        SchemaValidator(core)
    except SchemaError as exc:
        raise InvalidArgumentError(f"return_format: the JSON schema cannot be validated: {exc}") from exc
    return Checked(core, main.dtype)


class _Reader:
    def __init__(self, root: Json) -> None:
        self.root = root
        self.definitions: dict[str, Checked] = {}

    def node(self, schema: Any, place: str) -> Checked:
        schema = normalized(schema, place)
        if ref := schema.get("$ref"):
            return self.reference(ref, place)
        if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
            return _one_of([self.node(choice, place) for choice in choices])
        if "enum" in schema or "const" in schema:
            return self.choice(schema["enum"] if "enum" in schema else [schema["const"]], place)
        kinds = json_types(schema, place)
        parts = [self.kind(kind, schema, place) for kind in kinds if kind != "null"]
        if not parts:
            return Checked(cs.none_schema(), DataType.null()) if kinds else Checked(cs.any_schema(), DataType.python())
        checked = parts[0] if len(parts) == 1 else _one_of(parts)
        return Checked(cs.nullable_schema(checked.core), checked.dtype) if "null" in kinds else checked

    def reference(self, ref: str, place: str) -> Checked:
        if ref not in self.definitions:
            self.definitions[ref] = Checked(None, DataType.python())  # of a schema that contains itself
            found = self.node(resolve_reference(self.root, ref, place), place)
            self.definitions[ref] = Checked({**found.core, "ref": ref}, found.dtype)
        dtype = DataType.python() if ref == "#" else self.definitions[ref].dtype
        return Checked(cs.definition_reference_schema(ref), dtype)

    def choice(self, values: Any, place: str) -> Checked:
        if not values or any(isinstance(value, dict | list) for value in values):
            raise InvalidArgumentError(f"{place}: an enum lists texts, numbers, booleans or null; got {values!r}")
        present = [value for value in values if value is not None]
        core: Any = cs.literal_schema(present) if present else cs.none_schema()
        dtype = merged_dtype([DataType.from_hint(type(value)) for value in values])
        return Checked(cs.nullable_schema(core) if present and len(present) < len(values) else core, dtype)

    def kind(self, kind: str, schema: Json, place: str) -> Checked:
        if kind == "object" and "properties" in schema:
            return self.record(schema, place)
        if kind == "object":
            values = schema.get("additionalProperties", True)
            if not isinstance(values, Mapping):
                return Checked(cs.dict_schema(cs.str_schema(), cs.any_schema()), DataType.python())
            item = self.node(values, f"{place}.*")
            return Checked(cs.dict_schema(cs.str_schema(), item.core), DataType.map(DataType.string(), item.dtype))
        if kind == "array":
            item = self.node(schema.get("items", True), f"{place}[]")
            lengths = {"min_length": schema.get("minItems"), "max_length": schema.get("maxItems")}
            return Checked(cs.list_schema(item.core, **lengths), DataType.list(item.dtype))
        if kind == "string":
            return _FORMATS.get(schema.get("format", "")) or Checked(_core_text(schema), DataType.string())
        if kind == "boolean":
            return Checked(cs.bool_schema(), DataType.bool())
        limits: dict[str, Any] = {name: schema[keyword] for keyword, name in _BOUNDS.items() if keyword in schema}
        if kind == "integer":
            return Checked(cs.int_schema(**limits), DataType.int64())
        return Checked(cs.float_schema(**limits), DataType.float64())

    def record(self, schema: Json, place: str) -> Checked:
        required = schema.get("required", ())
        parts = {name: self.node(part, f"{place}.{name}") for name, part in schema["properties"].items()}
        for name in required:
            if name not in parts:
                raise InvalidArgumentError(
                    f"{place}: 'required' names {name!r}, which is not under 'properties': {', '.join(parts)}."
                    f"{did_you_mean(name, parts)}"
                )
        # Strict mode requires every field, so a model sends null for an omitted one.
        fields = {
            name: cs.typed_dict_field(part.core)
            if name in required
            else cs.typed_dict_field(cs.nullable_schema(part.core), required=False)
            for name, part in parts.items()
        }
        return Checked(
            cs.typed_dict_schema(fields), DataType.struct({name: part.dtype for name, part in parts.items()})
        )


def _one_of(parts: list[Checked]) -> Checked:
    return Checked(cs.union_schema([part.core for part in parts]), merged_dtype([part.dtype for part in parts]))


def _core_text(schema: Json) -> Any:
    lengths = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
    return cs.str_schema(pattern=schema.get("pattern"), regex_engine="python-re", **lengths)
