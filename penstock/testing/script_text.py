"""Parse faults and latencies written as Python calls, for the command line and HTTP."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.testing import faults, latency
from penstock.testing.faults import Fault
from penstock.testing.latency import Latency
from penstock.testing.script import Limits, Script

FAULTS = {name: kind for name, kind in vars(faults).items() if isinstance(kind, type) and issubclass(kind, Fault)}
LATENCIES = {name: kind for name, kind in vars(latency).items() if isinstance(kind, type) and issubclass(kind, Latency)}
FIELDS = ("latency", "faults", "limits", "api_key", "models", "dimensions", "seed")


def parse_fault(text: str) -> Fault:
    """Return the fault of a call.

    >>> parse_fault("ServerError(503, share=0.1)").status
    503
    """
    fault = _parse(text, FAULTS)
    if not isinstance(fault, Fault):
        raise InvalidArgumentError(f"{text!r} is not a fault; write it like ServerError(503, share=0.1).")
    return fault


def parse_latency(text: str | float) -> Latency | float:
    """Return seconds, or a distribution.

    >>> parse_latency("0.05"), parse_latency("LogNormal(median=0.5, p99=4)")
    (0.05, LogNormal(median=0.5, p99=4))
    """
    parsed = _parse(text, LATENCIES) if isinstance(text, str) else text
    if not isinstance(parsed, Latency | float | int):
        raise InvalidArgumentError(
            f"{text!r} is not a latency; give seconds, or a distribution like Uniform(0.1, 0.5)."
        )
    return parsed


def change_script(script: Script, changes: Mapping[str, Any]) -> Script:
    """Return a script with other values for some fields, given as text or plain data."""
    for name in changes:
        if name not in FIELDS:
            raise InvalidArgumentError(
                f"A script has no field {name!r}; available: {', '.join(FIELDS)}.{did_you_mean(name, FIELDS)}"
            )
    values = dict(changes)
    if "faults" in values:
        values["faults"] = tuple(parse_fault(text) for text in values["faults"])
    if "latency" in values:
        values["latency"] = parse_latency(values["latency"])
    if "limits" in values:
        values["limits"] = Limits(**values["limits"])
    return replace(script, **values)


def _parse(text: str, kinds: Mapping[str, type]) -> Any:
    """Evaluate a literal, or a call of one of the kinds with literals as arguments."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, kinds)
    except (SyntaxError, TypeError, ValueError) as exc:
        raise InvalidArgumentError(f"Cannot parse {text!r}: {exc}; available: {', '.join(kinds)}.") from exc


def _value(node: ast.expr, kinds: Mapping[str, type]) -> Any:
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.func.id not in kinds:
        raise ValueError(f"{ast.unparse(node.func)} is unknown")
    known = {**kinds, **LATENCIES}
    keywords = {word.arg: _value(word.value, known) for word in node.keywords if word.arg}
    return kinds[node.func.id](*[_value(argument, known) for argument in node.args], **keywords)
