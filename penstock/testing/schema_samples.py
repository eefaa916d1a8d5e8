"""Generate an instance of a JSON schema; equal seeds give equal instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

FORMATS = {
    "date": "2024-03-01",
    "date-time": "2024-03-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
MAX_DEPTH = 6  # below it, lists are empty and objects have their required properties only


def sample(schema: Mapping[str, Any], seed: str) -> Any:
    """Return an instance. The seed picks among the values of an ``enum``; other values are fixed.

    >>> sample({"type": "object", "properties": {"label": {"enum": ["good", "bad"]}, "n": {"type": "integer"}}}, "a")
    {'label': 'good', 'n': 1}
    """
    return _Sampler(schema, seed).value(schema, "text", 0)


class _Sampler:
    def __init__(self, root: Mapping[str, Any], seed: str) -> None:
        self._root, self._seed = root, seed

    def value(self, schema: Any, name: str, depth: int) -> Any:
        """Return an instance of a part of the schema, for the property ``name``."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return options[crc32(f"{self._seed}\0{name}".encode()) % len(options)]
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.value(options[-1 if depth >= MAX_DEPTH else 0], name, depth + 1)
        match self._kind(schema):
            case "object":
                properties = schema.get("properties", {})
                names = properties if depth < MAX_DEPTH else schema.get("required", ())
                return {key: self.value(properties.get(key), key, depth + 1) for key in names}
            case "array":
                fixed = schema.get("prefixItems", [])
                size = int(schema.get("minItems", depth < MAX_DEPTH))
                items = [*fixed, *[schema.get("items")] * (size - len(fixed))]
                return [self.value(item, name, depth + 1) for item in items]
            case "integer":
                return int(_number(schema))
            case "number":
                return float(_number(schema))
            case "boolean":
                return True
            case "null":
                return None
        text = FORMATS.get(schema.get("format", ""), name)
        return text.ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema with its reference and ``allOf`` merged into it."""
        if not isinstance(schema, Mapping):
            return {}
        merged = dict(schema)
        if reference := merged.pop("$ref", None):
            target: Any = self._root
            for step in str(reference).strip("#/").split("/"):
                target = target[step] if step else target
            merged = {**self._resolved(target), **merged}
        for part in map(self._resolved, merged.pop("allOf", ())):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            merged = {**merged, **part, "properties": properties}
        return merged

    def _kind(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = kind[0]
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return str(kind).lower()  # Google writes them in capitals


def _number(schema: dict[str, Any]) -> Any:
    """Return a number within the bounds."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        return 1 if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2
