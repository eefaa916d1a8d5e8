"""Check columns of an unknown schema before the query runs, and name the user's lines in later errors about them.

A select list without a star has known names even if its input has not, so a column that it dropped is an error at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from penstock.errors import ColumnNotFoundError, users_frame
from penstock.expr.nodes import Star, Unnest, columns_of
from penstock.plan import nodes
from penstock.plan.nodes import Plan, walk_plan

AnyPlan = TypeVar("AnyPlan", bound=Plan)
OTHERS = "the other columns of the input"


def with_line(plan: AnyPlan) -> AnyPlan:
    """Return the plan of a verb with the user's line; raise ColumnNotFoundError for a column that cannot exist."""
    node: Plan = plan
    while isinstance(node, nodes.Unary) and node.schema is None and node.line is None:
        _check(node)
        node = node.child
    frame = users_frame()
    return replace(plan, line=f"{frame.f_code.co_filename}, line {frame.f_lineno}")


@contextmanager
def naming_lines(plan: Plan) -> Iterator[None]:
    """Add the user's lines to an error about a missing column that is raised while the query runs."""
    try:
        yield
    except ColumnNotFoundError as exc:
        lines, line = list[str](), None
        for node in walk_plan(plan):
            line = node.line or line  # a verb may have several nodes; the first has the line
            if line is not None and exc.column in _columns_read(node):
                lines.append(line)
        exc.lines = tuple(dict.fromkeys(reversed(lines)))
        raise


def _check(plan: nodes.Unary) -> None:
    names, removed = _certain(plan.child)
    for column in sorted(_columns_read(plan)):
        if column in removed or (OTHERS not in names and column not in names):
            raise ColumnNotFoundError(column, names)


def _certain(plan: Plan) -> tuple[dict[str, None], set[str]]:
    """Return the columns that a plan has, with ``OTHERS`` if it may have more, and the columns that it lacks."""
    names: dict[str, None] = {}
    removed: set[str] = set()

    def add(*found: str) -> None:
        names.update((name, None) for name in found if name not in removed)

    while plan.schema is None:
        match plan:
            case nodes.Project(child, exprs):
                add(*(expr.name for expr in exprs if not isinstance(expr, (Star, Unnest))))
                stars = [expr for expr in exprs if isinstance(expr, Star)]
                if any(isinstance(expr, Unnest) for expr in exprs):
                    add(OTHERS)
                if OTHERS in names or not stars:
                    return names, removed
                removed.update(name for star in stars for name in star.exclude if name not in names)
                plan = child
            case nodes.MonotonicId(child, column):
                add(column)
                plan = child
            case nodes.Unpivot(ids=ids, variable_name=variable, value_name=value):
                add(*ids, variable, value)
                return names, removed
            case nodes.Unary(child) if not isinstance(plan, nodes.MapBatches):
                plan = child
            case _:
                add(OTHERS)
                return names, removed
    add(*plan.schema.names)
    return names, removed


def _columns_read(plan: Plan) -> set[str]:
    match plan:
        case nodes.Project(exprs=(Star(exclude),)):
            return set(exclude)
        case nodes.Project(exprs=exprs):
            return set().union(*map(columns_of, exprs))
        case nodes.Filter(predicate=predicate):
            return columns_of(predicate)
        case nodes.Explode(columns=columns):
            return set(columns)
        case nodes.Unpivot(ids=ids, values=values):
            return {*ids, *values}
        case _:
            return set()
