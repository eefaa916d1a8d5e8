"""Plans and stages as text, for ``df.explain()``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.expr.expression_text import describe
from penstock.expr.nodes import ColumnRef, Expr
from penstock.expr.udf import BatchLimits, BatchSpec, Policy, Resources, UdfSpec
from penstock.plan import nodes
from penstock.plan.lower import lower
from penstock.plan.nodes import Plan, fold_plan, sink_name
from penstock.plan.optimizer import optimize
from penstock.plan.stage_names import step_name
from penstock.plan.stages import AtMost, CallUdf, Evenly, Exactly, Inbox, Measured, Paced, Read, Stage, Step

MAX_COLUMNS = 12  # of a list of columns
MIN_WIDTH = 40  # of the text beside the lines of a tree

_TREE = re.compile("(?:[│ ]  |[├└]─ )*")


def explain_query(plan: Plan, width: int | None = None) -> str:
    """Return a plan as written, as optimized, and the stages it runs in, in lines of ``width`` cells."""
    optimized = optimize(plan)
    parts = {
        "Plan": explain(plan),
        "Optimized": explain(optimized),
        "Stages": explain_stages(lower(optimized, is_ordered=True)),
    }
    return "\n\n".join(f"== {title} ==\n{wrapped(text, width)}" for title, text in parts.items())


def wrapped(tree: str, width: int | None) -> str:
    r"""Return a tree with long lines broken; the tree's own lines are drawn beside the broken parts.

    >>> print(wrapped("Limit 5\n└─ Project col(a), col(a) + 1 as next_number\n   └─ Scan table", 44))
    Limit 5
    └─ Project col(a), col(a) + 1 as
       │    next_number
       └─ Scan table
    """
    if width is None:
        return tree
    lines = tree.split("\n")
    drawn = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        branch, below = _branch(line), _branch(following)
        beside = branch.replace("├─", "│ ").replace("└─", "  ")
        beside += "│    " if len(below) > len(branch) else "     "
        parts = textwrap.wrap(
            line[len(branch) :], max(width - len(beside), MIN_WIDTH), break_on_hyphens=False, drop_whitespace=True
        )
        drawn += [branch + parts[0], *(beside + part for part in parts[1:])] if parts else [line]
    return "\n".join(drawn)


def _branch(line: str) -> str:
    """Return the lines of the tree that stand before a text."""
    found = _TREE.match(line)
    return found[0] if found else ""


def explain(plan: Plan) -> str:
    """Draw a logical plan, the result at the top.

    Limit 5
    └─ Filter col(a) > 1
       └─ Scan parquet: columns a, b
    """
    lines: list[str] = fold_plan(plan, lambda node: node, lambda node, branches: _drawn(_line(node), branches))
    return "\n".join(lines)


def explain_stages(stages: Sequence[Stage]) -> str:
    """Draw the stages of a query, the last at the top, with their inbox policies.

    write parquet
    └─ udf predict: batches of 256; gpus 1
       └─ read parquet: columns a, b
    """
    trees: list[list[str]] = []
    for stage in stages:
        head = _with_details(stage.name, stage_details(stage))
        trees.append(_drawn(head, [trees[number] for number in stage.inputs]))
    return "\n".join(trees[-1])


def _drawn(head: str, branches: list[list[str]]) -> list[str]:
    """Return the lines of a tree, from its head and the lines of its branches."""
    lines = [head]
    for position, (first, *rest) in enumerate(branches):
        is_last = position == len(branches) - 1
        lines.append(f"{'└─' if is_last else '├─'} {first}")
        lines += [f"{'  ' if is_last else '│ '} {line}" for line in rest]
    return lines


def _line(plan: Plan) -> str:
    match plan:
        case nodes.Scan(source, columns, predicate, limit):
            details = []
            if columns is not None:
                details.append(f"columns {_listed(columns)}")
            if predicate is not None:
                details.append(f"where {describe(predicate)}")
            if limit is not None:
                details.append(f"limit {limit}")
            return _with_details(f"Scan {source.name}", details)
        case nodes.Project(child, exprs):
            return f"Project {_listed(_selected(child, exprs))}"
        case nodes.Filter(predicate=predicate):
            return f"Filter {describe(predicate)}"
        case nodes.UdfProject(call=call, column=column, keep=keep):
            details = _udf_details(call.udf) + ([f"keep {_listed(keep) or 'nothing'}"] if keep is not None else [])
            return _with_details(f"Udf {describe(call)} as {column}", details)
        case nodes.MapBatches(spec=spec):
            return _with_details(f"{_title(spec.verb)} {spec.name}", _udf_details(spec))
        case nodes.Limit(num_rows=num_rows, offset=offset):
            return f"Limit {'all' if num_rows is None else num_rows}{f' offset {offset}' if offset else ''}"
        case nodes.Sample(fraction=fraction, seed=seed, is_with_replacement=is_with_replacement):
            details = [] if seed is None else [f"seed {seed}"]
            return _with_details(f"Sample {fraction}", details + ["with replacement"] * is_with_replacement)
        case nodes.Explode(columns=columns):
            return f"Explode {', '.join(columns)}"
        case nodes.Unpivot(ids=ids, values=values, variable_name=variable, value_name=value):
            return f"Unpivot {', '.join(values)} as {variable}, {value}: ids {', '.join(ids) or 'none'}"
        case nodes.MonotonicId(column=column):
            return f"MonotonicId {column}"
        case nodes.IntoBatches(size=size):
            return f"IntoBatches {size}"
        case nodes.Repartition(num_partitions=num_partitions):
            return f"Repartition {num_partitions}"
        case nodes.Concat():
            return "Concat"
        case nodes.Relate(relation=relation):
            text = str(relation)
            return text[:1].upper() + text[1:]
        case nodes.Write(sink=sink):
            return f"Write {sink_name(sink)}"
    raise AssertionError(f"no text for {type(plan).__name__}")


def _selected(child: Plan, exprs: Sequence[Expr]) -> list[str]:
    """Return the items of a select list; if all input columns come first, ``*`` stands for them."""
    names = child.schema.names if child.schema is not None else []
    has_all = bool(names) and list(exprs[: len(names)]) == [ColumnRef(name) for name in names]
    rest = exprs[len(names) :] if has_all else exprs
    return ["*"] * has_all + [describe(expr) for expr in rest]


def _listed(names: Sequence[str]) -> str:
    """Return names with commas between them: the first few, and how many more there are."""
    left = len(names) - MAX_COLUMNS
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:MAX_COLUMNS])} and {left:,} more"


def _title(verb: str) -> str:
    return "".join(word.capitalize() for word in verb.split("_"))


def _with_details(head: str, details: Sequence[str]) -> str:
    return f"{head}: {'; '.join(details)}" if details else head


def _udf_details(spec: UdfSpec | BatchSpec) -> list[str]:
    """Return the options that differ from their defaults."""
    details = [f"batch_size {spec.batch_size}"] if isinstance(spec.batch_size, int) else []
    if isinstance(spec, UdfSpec) and spec.target.is_generator:
        details.insert(0, "generator")
    if spec.target.is_async:
        details.insert(0, "async")
    if isinstance(spec, UdfSpec) and spec.builtin.note:
        details.append(spec.builtin.note)
    return (
        details
        + _differences(spec.limits, BatchLimits())
        + _resource_details(spec.resources)
        + _differences(spec.policy, Policy())
    )


def _resource_details(resources: Resources) -> list[str]:
    """Return the resources by the names of the options that ask for them."""
    least, most = resources.min_workers, resources.max_workers
    if most is None:
        workers = "" if least == 1 else f"at least {least}"
    elif least == most:
        workers = str(most)
    else:
        workers = f"up to {most}" if least == 1 else f"{least} to {most}"
    others = _differences(replace(resources, min_workers=1, max_workers=None), Resources())
    return [*others, *([f"concurrency {workers}"] if workers else [])]


def _differences(given: Any, default: Any) -> list[str]:
    return [
        f"{name} {_shown(getattr(given, name))}"
        for name in type(given).__dataclass_fields__
        if getattr(given, name) != getattr(default, name)
    ]


def _shown(value: Any) -> str:
    return ", ".join(map(_shown, value)) if isinstance(value, tuple) else getattr(value, "__name__", str(value))


def stage_details(stage: Stage) -> list[str]:
    """Return how a stage runs: its batches, columns, further steps and resources."""
    details = _inbox_details(stage.inbox)
    match stage.work:
        case Read(_, request, steps):
            if request.columns is not None:
                details.append(f"columns {_listed(request.columns)}")
            if request.conditions:
                details.append(f"where {' and '.join(map(str, request.conditions))}")
            details += _step_details(steps)
        case CallUdf(call, column, _, steps):
            details += [f"{describe(call)} as {column}", *_step_details(steps)]
        case _:
            pass
    details += _resource_details(stage.resources)
    return details if stage.is_ordered else [*details, "any order"]


def _step_details(steps: Sequence[Step]) -> list[str]:
    return [f"then {', '.join(step_name(step) for step in steps)}"] if steps else []


def _inbox_details(inbox: Inbox) -> list[str]:
    match inbox:
        case Exactly(num_rows, _):
            return [f"batches of {num_rows}"]
        case AtMost(num_rows, _):
            return [f"batches up to {num_rows}"]
        case Paced():
            return ["batches by time"]
        case Measured():
            return ["batches by throughput"]
        case Evenly(num_parts):
            return [f"{num_parts} equal batches"]
        case _:
            return []
