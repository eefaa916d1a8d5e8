"""What a plan computes and from what, as data that can be kept as JSON and compared with another day's.

The same script gives the same fingerprint in every process. In it is all that may change the rows that come out; not in
it is what only says how fast, where and how often: batch sizes, workers, retries, time limits, keys, the sink.
``differences.py`` says in words how two of them differ.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.expr.nodes import ColumnRef, Expr, Literal, PythonValue, UdfCall, bottom_up, describe, walk
from penstock.expr.udf import UdfSpec
from penstock.plan.identity.code_keys import code_key, keyed
from penstock.plan.identity.differences import changed_inputs, changes
from penstock.plan.nodes import Filter, MapBatches, Plan, Project, Scan, UdfProject, Unary, Write
from penstock.protocols import Source, VersionedSource
from penstock.storage.secret import Secret, hidden
from penstock.types import DataType, Schema

__all__ = ["changed_inputs", "changes", "fingerprint", "told_value"]

FORMAT = 1  # raise it when fingerprints of older versions should not be compared with new ones
MAX_TEXT = 200  # characters of a text that are kept; of a longer one its beginning and a digest

_STEPS = {"Project": "select", "MonotonicId": "monotonic id", "IntoBatches": "into batches"}


def fingerprint(plan: Plan) -> dict[str, Any]:
    """Return the fingerprint of a plan as the user built it, before it is optimized; that of a write is its rows'.

    ``inputs`` are what is read, in the order of the plan: ``name``, ``options``, ``schema``, and ``versions``, which
    may be of many files. ``steps`` are what is done with the rows, first to last; a concat has the steps of each of its
    ``branches``. ``schema`` are the columns that come out, None where that is not known.
    """
    inputs: list[dict[str, Any]] = []
    steps = _steps(plan.child if isinstance(plan, Write) else plan, inputs)
    schema = plan.child.schema if isinstance(plan, Write) else plan.schema
    return {"format": FORMAT, "inputs": inputs, "steps": steps, "schema": _schema(schema)}


def _schema(schema: Schema | None) -> dict[str, str] | None:
    return None if schema is None else {field.name: str(field.dtype) for field in schema}


def _steps(plan: Plan, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps of a plan; a list and no recursion, because a plan may be deeper than Python's stack."""
    nodes = [plan]
    while isinstance(nodes[-1], Unary):
        nodes.append(nodes[-1].child)
    first = nodes[-1]
    if isinstance(first, Scan):
        inputs.append(_input(first.source))
        steps = [{"step": "read", "input": len(inputs) - 1, **_pushed_down(first)}]
    else:
        steps = [{"step": _step_name(first), "branches": [_steps(child, inputs) for child in first.children]}]
    return steps + [_step(node) for node in reversed(nodes[:-1])]


def _pushed_down(scan: Scan) -> dict[str, Any]:
    given = {"columns": scan.columns, "limit": scan.limit}
    told = {name: told_value(value) for name, value in given.items() if value is not None}
    return told if scan.predicate is None else {**told, "predicate": _expression(scan.predicate)}


def _step(plan: Plan) -> dict[str, Any]:
    head = {"step": _step_name(plan)}
    match plan:
        case Project(exprs=exprs):
            return {**head, "columns": {expr.name: _expression(expr) for expr in exprs}}
        case Filter(predicate=predicate):
            return {**head, "predicate": _expression(predicate)}
        case UdfProject(call=call, column=column, keep=keep):
            return {**head, "columns": {column: _expression(call)}, "keep": told_value(keep)}
        case MapBatches(spec=spec):
            options = {"batch_format": spec.batch_format} if spec.verb == "map_batches" else {}
            called = {"function": spec.name, "code": code_key(spec).hex(), "options": options}
            return {"step": spec.verb, "call": called}
        case _:
            names = [field.name for field in dataclasses.fields(plan) if field.name not in ("schema", "child")]
            return {**head, "options": {name: told_value(getattr(plan, name)) for name in names}}


def _step_name(plan: Plan) -> str:
    kind = type(plan).__name__
    return _STEPS.get(kind, kind.lower())


# --- inputs -----------------------------------------------------------------------------------------------------------


def _input(source: Source) -> dict[str, Any]:
    is_ours = type(source).__module__.partition(".")[0] == __name__.partition(".")[0]
    return {
        # Ours name the first file, or all numbers of a range: that is in the versions.
        "name": source.name.partition("(")[0] if is_ours else source.name,
        "options": _options(source),
        "schema": _schema(source.schema()),
        "versions": dict(source.versions()) if isinstance(source, VersionedSource) else _state(source),
    }


def _options(source: Source) -> dict[str, Any]:
    told = getattr(source, "options", None)
    if callable(told):
        return {name: told_value(value) for name, value in told().items() if value not in (None, {}, ())}
    return {"code": code_key(type(source)).hex()}


def _state(source: Source) -> dict[str, str]:
    """Return what can be told of a source that does not say what it reads: that which it is made of."""
    found = keyed(source)
    return {source.name: "its content cannot be told" if found.opaque else f"digest {found.digest.hex()}"}


# --- expressions ------------------------------------------------------------------------------------------------------


def _expression(expr: Expr) -> Any:
    """Return an expression: as text, with a digest of all of it, and the functions that it calls and constants."""
    if isinstance(expr, ColumnRef):
        return describe(expr)
    calls = [_call(node) for node in walk(expr) if isinstance(node, UdfCall)]
    constants = [told_value(node.scalar.as_py()) for node in walk(expr) if isinstance(node, Literal)]
    told: dict[str, Any] = {"text": hidden(describe(expr)), "digest": _digest(expr)}
    if calls:
        told["calls"] = calls
    if constants:
        told["constants"] = constants
    return told


def _call(call: UdfCall) -> dict[str, Any]:
    spec = call.udf
    told: dict[str, Any] = {"function": spec.name}
    if spec.builtin.identity:
        told["options"] = {name: told_value(value) for name, value in spec.builtin.identity}
    else:
        told["code"] = code_key(spec).hex()
    arguments = {f"argument {number}": value for number, value in enumerate(call.args, 1)} | dict(call.kwargs)
    given = {name: told_value(each.value) for name, each in arguments.items() if isinstance(each, PythonValue)}
    return {**told, "arguments": given} if given else told


def _digest(expr: Expr) -> str:
    """Return a digest of a whole expression; of shared parts each once, as there may be more paths than can be gone."""
    found: dict[int, bytes] = {}
    for node in bottom_up(expr):
        own = [
            value if isinstance(value, UdfSpec) else _without_children(value)
            for value in (getattr(node, field.name) for field in dataclasses.fields(node))
            if not isinstance(value, Expr)
        ]
        extra = [_digest(node.body)] if hasattr(node, "body") else []
        parts = [type(node).__name__, own, extra, [found[id(child)] for child in node.children]]
        found[id(node)] = code_key(parts)
    return found[id(expr)].hex()


def _without_children(value: Any) -> Any:
    """Return a field's value without the expressions in it, which count by their own digests."""
    if isinstance(value, tuple):
        return [_without_children(each) for each in value]
    return None if isinstance(value, Expr) else value


# --- values -----------------------------------------------------------------------------------------------------------


def told_value(value: Any) -> Any:
    """Return a value as JSON has it and people may read it: long ones by their beginning and a digest, no secrets.

    >>> told_value({"stop": ("a", b"b"), "temperature": 0.5}), told_value("x" * 1000)[-45:]
    ({'stop': ['a', "b'b'"], 'temperature': 0.5}, 'xxxxxxx… [1000 characters, digest 44f8354494]')
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else repr(value)
        case str():
            return _text(value)
        case bytes():
            return _text(repr(value)) if len(value) < MAX_TEXT else f"{len(value)} bytes, digest {_hex(value)}"
        case Secret():
            return "***"
        case DataType() | pa.DataType():
            return str(value)
        case datetime.date() | datetime.time() | datetime.timedelta() | decimal.Decimal() | uuid.UUID():
            return repr(value)
        case list() | tuple() if len(value) <= MAX_TEXT:
            return [told_value(each) for each in value]
        case Mapping() if type(value).__module__.partition(".")[0] != "penstock" and len(value) <= MAX_TEXT:
            return {str(name): told_value(each) for name, each in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return {name: told_value(each) for name, each in fields.items()}
        case _:
            name = getattr(value, "__name__", None) or type(value).__name__
            return f"{name}, digest {code_key(value).hex()[:10]}"


def _text(value: str) -> str:
    shown = hidden(value)
    if len(shown) <= MAX_TEXT:
        return shown
    return f"{shown[: MAX_TEXT // 2]}… [{len(shown)} characters, digest {_hex(shown.encode('utf-8', 'replace'))}]"


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:10]
