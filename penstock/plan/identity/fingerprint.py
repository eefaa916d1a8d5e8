"""Describe what a plan computes, and from which inputs, as JSON that is compared with the description of a later run.

The same script has the same fingerprint in every process. It holds all that can change the rows of the result. It does
not hold what only changes where, how fast or how often functions run: batch sizes, workers, retries, time limits, API
keys, the sink. In every list of objects the first entry of an object is its name: see ``differences``.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from penstock.expr.expression_text import describe
from penstock.expr.nodes import Expr, Literal, PythonValue, UdfCall, bottom_up, walk
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.identity.code_keys import code_identity, code_key, nested_key
from penstock.plan.identity.values import readable
from penstock.plan.nodes import Filter, MapBatches, Plan, Project, Scan, UdfProject, Unary, Write
from penstock.protocols import Source, SourceOptions, VersionedSource
from penstock.storage.secret import hidden
from penstock.types import Schema

_readable = functools.partial(readable, digest=code_key)
_STEPS = {"Project": "select", "MonotonicId": "monotonic id", "IntoBatches": "into batches"}


def fingerprint(plan: Plan) -> dict[str, Any]:
    """Return the fingerprint of a plan as the user built it. A write has the fingerprint of its rows.

    ``inputs`` are the sources in the order of the plan: ``name``, ``options``, ``columns``, and ``versions``, one for
    each file. ``steps`` are the operations from first to last; a concat has the steps of each of its ``branches``.
    ``columns`` are the types of the result, None if they are not known.
    """
    inputs: list[dict[str, Any]] = []
    rows = plan.child if isinstance(plan, Write) else plan
    columns = _columns(rows.schema)
    return {
        "inputs": inputs,
        "steps": _steps(rows, inputs),
        "columns": columns,
        "order of columns": list(columns or ()),
    }


def _columns(schema: Schema | None) -> dict[str, str] | None:
    return None if schema is None else {field.name: str(field.dtype) for field in schema}


def _steps(plan: Plan, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps of a plan. A loop, because a plan may be deeper than Python's stack."""
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
    found = {name: _readable(value) for name, value in given.items() if value is not None}
    return found if scan.predicate is None else {**found, "predicate": _expression(scan.predicate)}


def _step(plan: Plan) -> dict[str, Any]:
    head = {"step": _step_name(plan)}
    match plan:
        case Project(exprs=exprs):
            return {**head, **{f"column {expr.name!r}": _expression(expr) for expr in exprs}}
        case Filter(predicate=predicate):
            return {**head, "predicate": _expression(predicate)}
        case UdfProject(call=call, column=column, keep=keep):
            return {**head, f"column {column!r}": _expression(call), "keep": _readable(keep)}
        case MapBatches(spec=spec):
            options = {"batch_format": spec.batch_format} if spec.verb in ("map_batches", "map_groups") else {}
            return {"step": spec.verb, "calls": [{"function": spec.name, **_code(spec), **options}]}
        case _:
            names = [field.name for field in dataclasses.fields(plan) if field.name not in ("schema", "line", "child")]
            return {**head, **{name: _readable(getattr(plan, name)) for name in names}}


def _step_name(plan: Plan) -> str:
    kind = type(plan).__name__
    return _STEPS.get(kind, kind.lower())


# --- inputs -----------------------------------------------------------------------------------------------------------


def _input(source: Source) -> dict[str, Any]:
    is_native = type(source).__module__.partition(".")[0] == __name__.partition(".")[0]
    return {
        # Names of our sources contain the first file or the range of numbers, which the versions have as well.
        "name": source.name.partition("(")[0] if is_native else source.name,
        "options": _options(source, is_native),
        "columns": _columns(source.schema()),
        "versions": dict(source.versions()) if isinstance(source, VersionedSource) else _state(source),
    }


def _options(source: Source, is_native: bool) -> dict[str, Any]:
    if isinstance(source, SourceOptions):
        return {name: _readable(value) for name, value in source.options().items() if value not in (None, {}, ())}
    return {} if is_native else {"code": f"digest {code_key(type(source)).hex()}"}


def _state(source: Source) -> dict[str, str]:
    """Return a version of a source without versions of its own: a digest of its attributes."""
    found = code_identity(source)
    return {source.name: "unknown content" if found.opaque else f"digest {found.digest.hex()}"}


# --- expressions ------------------------------------------------------------------------------------------------------


def _expression(expr: Expr) -> dict[str, Any]:
    """Return an expression as text, with the functions it calls, its constants, and a digest of everything."""
    calls = [_call(node) for node in walk(expr) if isinstance(node, UdfCall)]
    constants = [_readable(node.scalar.as_py()) for node in walk(expr) if isinstance(node, Literal)]
    return {
        "expression": hidden(describe(expr)),
        **({"calls": calls} if calls else {}),
        **({"constants": constants} if constants else {}),
        "digest": f"digest {nested_key(bottom_up(expr)).hex()}",
    }


def _call(call: UdfCall) -> dict[str, Any]:
    spec = call.udf
    identity = {name: _readable(value) for name, value in spec.builtin.identity} or _code(spec)
    arguments = {str(number): value for number, value in enumerate(call.args, 1)} | dict(call.kwargs)
    given = {f"argument {n}": _readable(each.value) for n, each in arguments.items() if isinstance(each, PythonValue)}
    return {"function": spec.name, **identity, **given}


def _code(spec: UdfSpec | BatchSpec) -> dict[str, Any]:
    found = code_identity(spec)
    version = {"version": spec.version} if isinstance(spec, UdfSpec) and spec.version is not None else {}
    return {**version, **found.uses, "digest": f"digest {found.digest.hex()}"}
