"""Names of stages, made here once: a few words that the terminal, the dashboard, statistics and errors show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.errors import shortened
from penstock.expr.expression_text import describe
from penstock.expr.nodes import Expr, Star
from penstock.expr.udf import UdfSpec
from penstock.plan import stages
from penstock.plan.expression_cost import picks_parts
from penstock.plan.nodes import sink_name
from penstock.plan.substitution import is_new_column, replace_columns
from penstock.protocols import ShortNamed, Sink, Source
from penstock.storage.secret import hidden
from penstock.storage.urls import redacted, short_path

MAX_NAME = 40  # characters
_VERBS = {"embed_text": "embed", "embed_image": "embed", "classify_text": "classify", "classify_image": "classify"}


def with_names(built: Sequence[stages.Stage]) -> tuple[stages.Stage, ...]:
    """Return the stages with distinct names: calls with the same name also get their column's name, other stages a
    number."""
    calls = {stage.work.column: stage.work.call for stage in built if isinstance(stage.work, stages.CallUdf)}
    hidden_calls = {column: call for column, call in calls.items() if is_new_column(column)}
    named = [replace(stage, name=_safe_name(stage, hidden_calls)) for stage in built]
    count = Counter(stage.name for stage in named)
    named = [replace(stage, name=_with_column(stage)) if count[stage.name] > 1 else stage for stage in named]
    count, seen = Counter(stage.name for stage in named), Counter[str]()
    for position, stage in enumerate(named):
        seen[stage.name] += 1
        if count[stage.name] > 1:
            named[position] = replace(stage, name=f"{stage.name} ({seen[stage.name]})")
    return tuple(named)


def _safe_name(stage: stages.Stage, calls: Mapping[str, Expr]) -> str:
    return shortened(hidden(redacted(_name(stage, calls))), MAX_NAME)


def _with_column(stage: stages.Stage) -> str:
    match stage.work:
        case stages.CallUdf(column=column) if not is_new_column(column):
            return f"{stage.name} as {shortened(column, MAX_NAME)}"
        case _:
            return stage.name


def _name(stage: stages.Stage, calls: Mapping[str, Expr]) -> str:
    """Return the name of a stage. ``calls`` are the calls whose columns users do not know."""
    match stage.work:
        case stages.Read(source):
            name = _short_name(source, source.name)
            return name if name.startswith(("from_", "read_")) else f"read {name}"
        case stages.Transform(()):
            return f"repartition {stage.inbox.num_parts}" if isinstance(stage.inbox, stages.Evenly) else "into batches"
        case stages.Transform(steps):
            work = [step for step in steps if not is_picking(step)]
            work = work or [step for step in steps if isinstance(step, stages.Select)]
            return ", ".join(step_name(step, calls) for step in work) or "pass rows on"
        case stages.CallUdf(call):
            return _function_name(call.udf)
        case stages.CallBatch(spec):
            return f"{spec.verb} {spec.name}"
        case stages.RunRelation(relation):
            return str(relation)
        case stages.WriteOut(sink):
            return f"write {_short_name(sink, sink_name(sink))}"
    match stage.inbox:
        case stages.Cut(num_rows, 0):
            return f"limit {num_rows}"
        case stages.Cut(None, offset):
            return f"offset {offset}"
        case stages.Cut(num_rows, offset):
            return f"limit {num_rows} offset {offset}"
        case _:
            return "concat"


def _short_name(place: Source | Sink, name: str) -> str:
    return place.short_name if isinstance(place, ShortNamed) else name


def _function_name(spec: UdfSpec) -> str:
    """Return the name of a function: the name of its model if it has one, else its own name, with ``udf`` before a
    user's function.
    """
    if spec.builtin.model is not None:
        return f"{_VERBS.get(spec.name, spec.name)} {short_path(spec.builtin.model)}"
    module = getattr(spec.target.function, "__module__", None) or ""  # a method of a builtin object has None
    is_ours = module.partition(".")[0] == __name__.partition(".")[0]
    return _VERBS.get(spec.name, spec.name) if is_ours else f"udf {spec.name}"


def is_picking(step: stages.Step) -> bool:
    """Return True if a step only picks, orders and renames columns and their parts, which is too cheap for a stage."""
    match step:
        case stages.Select(exprs):
            return all(isinstance(expr, Star) or picks_parts(expr) for expr in exprs)
        case _:
            return isinstance(step, stages.MarkSide)


def step_name(step: stages.Step, calls: Mapping[str, Expr] | None = None) -> str:
    """Return a short description of a step, with ``calls`` in place of their columns."""
    match step:
        case stages.Select(exprs):
            names = [_column_name(expr) for expr in exprs]
            return f"select {', '.join([name for name in names if not is_new_column(name)] or names)}"
        case stages.Where(predicate):
            return f"filter {describe(replace_columns(predicate, calls or {}))}"
        case stages.ExplodeLists(columns):
            return f"explode {', '.join(columns)}"
        case stages.Melt():
            return "unpivot"
        case stages.TakeSample(fraction):
            return f"sample {fraction}"
        case stages.NumberRows(column):
            return f"number rows as {column}"
        case stages.MarkSide(side):
            return f"input {side}"


def _column_name(expr: Expr) -> str:
    return describe(expr) if isinstance(expr, Star) else expr.name
