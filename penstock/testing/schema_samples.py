"""Generate an instance of a JSON schema; equal seeds give equal instances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from zlib import crc32

FORMATS = {
    "date": "2024-03-01",
    "date-time": "2024-03-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
MAX_REFERENCES = 50  # in a chain
MAX_DEPTH = 12  # below it, recursive schemas take the shortest option


def sample(schema: Mapping[str, Any], seed: str) -> Any:
    """Return an instance.

    >>> sample({"type": "object", "properties": {"label": {"enum": ["good", "bad"]}, "n": {"type": "integer"}}}, "a")
    {'label': 'bad', 'n': 43}
    """
    return _Sampler(schema).value(schema, seed, "", 0)


class _Sampler:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def value(self, schema: Any, seed: str, name: str, depth: int) -> Any:
        schema = self._resolved(schema)
        draw = crc32(f"{seed}\0{name}".encode())
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return options[draw % len(options)]
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.value(self._option(options, draw, depth), seed, name, depth + 1)
        match self._kind(schema, draw, depth):
            case "object":
                return self._object(schema, seed, name, depth)
            case "array":
                return self._array(schema, seed, name, draw, depth)
            case "integer":
                return int(_whole_number(schema, draw))
            case "number":
                return float(_whole_number(schema, draw)) if "multipleOf" in schema else _number(schema, draw)
            case "boolean":
                return bool(draw & 1)
            case "null":
                return None
            case _:
                return _string(schema, name, draw)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema with its references and ``allOf`` merged into it."""
        if not isinstance(schema, Mapping):
            return {}
        merged = dict(schema)
        for _ in range(MAX_REFERENCES):
            if (reference := merged.pop("$ref", None)) is None:
                break
            target: Any = self._root
            for step in str(reference).lstrip("#/").split("/") if reference != "#" else []:
                target = target[step.replace("~1", "/").replace("~0", "~")]
            merged = {**target, **merged}
        else:
            raise ValueError("the references of the schema form a circle")
        for part in merged.pop("allOf", ()):
            part = self._resolved(part)
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged = {**merged, **part}
            if properties:
                merged |= {"properties": properties, "required": required}
        return merged

    def _option(self, options: list[Any], draw: int, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return min(options, key=lambda option: len(str(self._resolved(option))))
        return options[draw % len(options)]

    def _kind(self, schema: dict[str, Any], draw: int, depth: int) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = "null" if depth >= MAX_DEPTH and "null" in kind else kind[draw % len(kind)]
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return str(kind).lower()  # Google writes them in capitals

    def _object(self, schema: dict[str, Any], seed: str, name: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if depth >= MAX_DEPTH:
            properties = {key: properties[key] for key in schema.get("required", ()) if key in properties}
        return {key: self.value(part, seed, f"{name}.{key}", depth + 1) for key, part in properties.items()}

    def _array(self, schema: dict[str, Any], seed: str, name: str, draw: int, depth: int) -> list[Any]:
        least = int(schema.get("minItems", 0 if depth >= MAX_DEPTH else 1))
        most = int(schema.get("maxItems", least + 2))
        fixed = schema.get("prefixItems", [])
        size = least if depth >= MAX_DEPTH else least + draw % (max(most, least) - least + 1)
        items = [*fixed, *[schema.get("items", {})] * max(0, size - len(fixed))]
        return [self.value(part, seed, f"{name}[{index}]", depth + 1) for index, part in enumerate(items)]


def _whole_number(schema: dict[str, Any], draw: int) -> Any:
    """Return a multiple of ``multipleOf``, or of 1, within the bounds."""
    step = schema.get("multipleOf", 1)
    low, high = _bounds(schema)
    first = math.ceil(low / step) * step
    first += step if first == schema.get("exclusiveMinimum") else 0
    last = math.floor(high / step) * step
    last -= step if last == schema.get("exclusiveMaximum") else 0
    return first + step * (draw % max(1, round((last - first) / step) + 1))


def _number(schema: dict[str, Any], draw: int) -> float:
    """Return a number between the bounds, exclusive."""
    low, high = _bounds(schema)
    return float(low + (high - low) * (draw % 99 + 1) / 100)


def _bounds(schema: dict[str, Any]) -> tuple[Any, Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    width = 100 * schema.get("multipleOf", 1)
    if low is None:
        low = 0 if high is None or high > 0 else high - width
    return low, low + width if high is None else high


def _string(schema: dict[str, Any], name: str, draw: int) -> str:
    if (form := schema.get("format")) in FORMATS:
        return FORMATS[form]
    text = f"{name.rpartition('.')[2] or 'text'} {draw:08x}"
    text = text.ljust(int(schema.get("minLength", 0)), "x")
    return text[: int(schema.get("maxLength", len(text)))]
