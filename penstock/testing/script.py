"""The settings of a server: data that is sent to its process, or text on its command line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.testing import answer_times, faults
from penstock.testing.answer_times import Latency
from penstock.testing.apis.model_api import ModelRequest
from penstock.testing.faults import Fault

AnswerFunction = Callable[[ModelRequest], "str | dict[str, Any] | list[Any] | Fault"]


@dataclass(frozen=True)
class Limits:
    """Rate limits; requests above them get 429. ``burst_s`` is the size of a burst in seconds."""

    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    max_concurrency: int | None = None
    burst_s: float = 1.0
    has_headers: bool = True  # report the remaining quota, and the wait after a refusal


@dataclass(frozen=True)
class EmbeddingLimits:
    """Limits of an embedding request; requests above them get 400, as with OpenAI."""

    max_items: int = 2048
    max_input_tokens: int = 8192
    max_total_tokens: int = 300_000


@dataclass(frozen=True)
class BatchTiming:
    """The seconds that a batch spends in each state."""

    validating_s: float = 0.02
    processing_s: float = 0.05
    finalizing_s: float = 0.02


@dataclass(frozen=True)
class Script:
    latency: Latency | float = 0.0
    faults: Sequence[Fault] = ()
    answer: AnswerFunction | None = None
    limits: Limits = field(default_factory=Limits)
    api_key: str | None = None
    models: Sequence[str] | None = None
    dimensions: int | None = None  # of embeddings; None: as many as the model has
    embedding_limits: EmbeddingLimits = field(default_factory=EmbeddingLimits)
    batches: BatchTiming = field(default_factory=BatchTiming)
    seed: int = 0
    keep_requests: int = 100_000


SCRIPT_FIELDS = ("latency", "faults", "limits", "api_key", "models", "dimensions", "seed")
KINDS = {
    name: kind
    for module in (faults, answer_times)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Fault | Latency)
}


def parse_fault(text: str) -> Fault:
    """Return the fault that a call describes.

    >>> parse_fault("ServerError(503, share=0.1)").status
    503
    """
    fault = _parse(text, example="ServerError(503, share=0.1)")
    if not isinstance(fault, Fault):
        raise InvalidArgumentError(f"{text!r} is not a fault; write it like ServerError(503, share=0.1).")
    return fault


def parse_latency(text: str) -> Latency | float:
    """Return seconds, or a distribution.

    >>> parse_latency("0.05"), parse_latency("LogNormal(median=0.5, p99=4)")
    (0.05, LogNormal(median=0.5, p99=4))
    """
    parsed = _parse(text, example="Uniform(0.1, 0.5)")
    if not isinstance(parsed, Latency | float | int):
        raise InvalidArgumentError(
            f"{text!r} is not a latency; give seconds, or a distribution like Uniform(0.1, 0.5)."
        )
    return parsed


def change_script(script: Script, changes: Mapping[str, Any]) -> Script:
    """Return a script with other values for some fields, given as text or plain data."""
    if unknown := sorted(set(changes) - set(SCRIPT_FIELDS)):
        raise InvalidArgumentError(f"A script has no field {unknown[0]!r}; available: {', '.join(SCRIPT_FIELDS)}.")
    values = dict(changes)
    if "faults" in values:
        values["faults"] = tuple(parse_fault(text) for text in values["faults"])
    if "latency" in values:
        values["latency"] = parse_latency(str(values["latency"]))
    if "limits" in values:
        values["limits"] = Limits(**values["limits"])
    return replace(script, **values)


def _parse(text: str, example: str) -> Any:
    """Evaluate a literal, or the call of a fault or a distribution with literals as arguments."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as exc:
        raise InvalidArgumentError(f"Cannot parse {text!r}: {exc}; write it like {example}.") from exc


def _value(node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.func.id not in KINDS:
        raise ValueError(f"{ast.unparse(node.func)} is unknown; available: {', '.join(KINDS)}")
    keywords = {word.arg: _value(word.value) for word in node.keywords if word.arg}
    return KINDS[node.func.id](*[_value(argument) for argument in node.args], **keywords)
