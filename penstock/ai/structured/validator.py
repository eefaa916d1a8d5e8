"""Validators of pydantic for JSON schemas. Import this module late: pydantic takes long to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema as cs

from penstock.ai.structured.json_schemas import Json, json_types, normalized, resolve_reference
from penstock.errors import InvalidArgumentError, did_you_mean


def core_schema_of(schema: Json) -> Any:
    """Return the pydantic-core schema that validates values of a JSON schema."""
    builder = _CoreBuilder(schema)
    main = builder.node(schema, "return_format")
    result = cs.definitions_schema(main, list(builder.definitions.values())) if builder.definitions else main
    try:
        SchemaValidator(result)
    except SchemaError as exc:
        raise InvalidArgumentError(f"return_format: the JSON schema cannot be validated: {exc}") from exc
    return result


class _CoreBuilder:
    def __init__(self, root: Json) -> None:
        self.root = root
        self.definitions: dict[str, Any] = {}

    def node(self, schema: Any, place: str) -> Any:
        schema = normalized(schema, place)
        if ref := schema.get("$ref"):
            return self.reference(ref, place)
        if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
            return cs.union_schema([self.node(choice, place) for choice in choices])
        if "enum" in schema or "const" in schema:
            return self.choice(schema["enum"] if "enum" in schema else [schema["const"]], place)
        kinds = json_types(schema, place)
        parts = [self.kind(kind, schema, place) for kind in kinds if kind != "null"]
        if not parts:
            return cs.none_schema() if kinds else cs.any_schema()
        checked = parts[0] if len(parts) == 1 else cs.union_schema(parts)
        return cs.nullable_schema(checked) if "null" in kinds else checked

    def reference(self, ref: str, place: str) -> Any:
        if ref not in self.definitions:
            self.definitions[ref] = None  # a schema may contain itself
            self.definitions[ref] = {**self.node(resolve_reference(self.root, ref, place), place), "ref": ref}
        return cs.definition_reference_schema(ref)

    def choice(self, values: Any, place: str) -> Any:
        if not values or any(isinstance(value, dict | list) for value in values):
            raise InvalidArgumentError(f"{place}: an enum lists texts, numbers, booleans or null; got {values!r}")
        present = [value for value in values if value is not None]
        checked = cs.literal_schema(present) if present else cs.none_schema()
        return cs.nullable_schema(checked) if present and len(present) < len(values) else checked

    def kind(self, kind: str, schema: Json, place: str) -> Any:
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
        required = schema.get("required", ())
        fields = {}
        for name, part in schema["properties"].items():
            checked = self.node(part, f"{place}.{name}")
            is_required = name in required
            # Strict mode requires every field, so a model sends null for an omitted one.
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
    formats: dict[str, Any] = {
        "date-time": cs.datetime_schema,
        "date": cs.date_schema,
        "time": cs.time_schema,
        "duration": cs.timedelta_schema,
        "uuid": cs.uuid_schema,
    }
    if make := formats.get(schema.get("format", "")):
        return make()
    lengths = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
    return cs.str_schema(pattern=schema.get("pattern"), regex_engine="python-re", **lengths)
