"""Rewrite a JSON schema for OpenAI's strict mode.

In strict mode every object requires all its properties and allows no others; optional properties become nullable. The
server refuses a schema with an unknown keyword, so those are removed here and validated when the answer arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.ai.structured.json_schemas import UNSUPPORTED

_KEPT = {
    *("type", "enum", "const", "description", "pattern", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema for strict mode, or None if strict mode cannot express it. The top must be an object.

    >>> strict({"type": "object", "properties": {"n": {"type": "integer", "default": 0}}})["properties"]
    {'n': {'type': ['integer', 'null']}}
    >>> strict({"type": "object", "additionalProperties": {"type": "string"}}) is None
    True
    """
    writer = _Writer(schema.get("$defs", {}))
    try:
        result = writer.node({key: value for key, value in schema.items() if key != "$defs"})
        defs = {name: writer.node(part) for name, part in schema.get("$defs", {}).items()}
    except _NotStrictError:
        return None
    return {**result, "$defs": defs} if defs else result


def optional_properties(schema: Any) -> Iterator[str]:
    """Yield the name of each optional property, at any depth."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            yield from (name for name in properties if name not in schema.get("required", ()))
        for part in schema.values():
            yield from optional_properties(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from optional_properties(part)


class _NotStrictError(Exception):
    pass


class _Writer:
    def __init__(self, defs: Mapping[str, Any]) -> None:
        self.defs = defs

    def node(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or not schema.keys().isdisjoint(UNSUPPORTED):
            raise _NotStrictError
        if "$ref" in schema:
            return self.reference(schema)
        if len(schema.get("allOf", ())) == 1:
            beside = {key: value for key, value in schema.items() if key != "allOf"}
            return self.node({**schema["allOf"][0], **beside})
        result = {key: value for key, value in schema.items() if key in _KEPT}
        if schema.get("format") in _FORMATS:
            result["format"] = schema["format"]
        if "type" not in result and (values := _choices(schema)):
            result["type"] = _types_of(values)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            result["anyOf"] = [self.node(choice) for choice in choices]
        elif schema.get("nullable") and isinstance(schema.get("type"), str):
            result["type"] = [schema["type"], "null"]
        if "properties" in schema or "object" in _types(schema):
            result |= self.properties(schema)
        if "items" in schema or "array" in _types(schema):
            result["items"] = self.node(schema.get("items"))
        if "allOf" in schema or not result.keys() & {"type", "enum", "const", "anyOf"}:
            raise _NotStrictError
        return result

    def reference(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a reference, inside of ``anyOf`` if the schema adds a description: a reference has no siblings."""
        ref = schema["$ref"]
        if ref.removeprefix("#/$defs/") not in self.defs and ref != "#":
            raise _NotStrictError
        if "description" not in schema:
            return {"$ref": ref}
        return {"description": schema["description"], "anyOf": [{"$ref": ref}]}

    def properties(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if "properties" not in schema and schema.get("additionalProperties") is not False:
            raise _NotStrictError  # a free map
        given = schema.get("properties", {})
        required = schema.get("required", ())
        parts = {name: self.node(part) for name, part in given.items()}
        return {
            "type": schema.get("type", "object"),
            "properties": {name: part if name in required else _nullable(part) for name, part in parts.items()},
            "required": list(given),
            "additionalProperties": False,
        }


def _choices(schema: Mapping[str, Any]) -> Sequence[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _types_of(values: Sequence[Any]) -> str | list[str]:
    kinds = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values if type(value) in _TYPE_NAMES))
    return kinds[0] if len(kinds) == 1 else kinds


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = _types(schema)
    choices = schema.get("anyOf", ())
    if "null" in kinds or any("null" in _types(choice) for choice in choices):
        return schema
    if choices:
        return {**schema, "anyOf": [*choices, {"type": "null"}]}
    if kinds and not schema.keys() & {"enum", "const", "properties", "items"}:
        return {**schema, "type": [*kinds, "null"]}
    description = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [inner, {"type": "null"}]}
