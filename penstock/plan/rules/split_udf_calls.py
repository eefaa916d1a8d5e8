"""Give every UDF call its own node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import InvalidArgumentError
from penstock.expr.expression_text import describe
from penstock.expr.nodes import ColumnRef, Expr, Star, UdfCall, Unnest, columns_of, has_udf, rewrite, unalias
from penstock.plan.branches import with_conditions
from penstock.plan.nodes import Filter, Plan, Project, UdfProject
from penstock.plan.rules.merge_projects import is_identity
from penstock.plan.substitution import named, new_column, replace_columns, without_needless_alias
from penstock.types import Schema


def split_udf_calls(plan: Plan) -> Plan:
    """Compute each UDF call of a select list or predicate as a column, once, before it is used.

    Project(x, [a, f(a) + f(b)])  ->  Project(UdfProject(UdfProject(x, f(a) as t0), f(b) as t1), [a, t0 + t1])
    Filter(x, f(a) > 1)           ->  Project(Filter(UdfProject(x, f(a) as t0), t0 > 1), [every column of x])

    A call that is a whole item of the list gets its final name at once, unless a column of that name is read later. The
    outer Project is then often the identity and is left out. A call in a branch of ``if_else`` or ``coalesce`` is made
    only for the rows that use its value; see ``plan/branches.py``.
    """
    match plan:
        case Project() if plan.has_udf:
            return _split_project(plan)
        case Filter() if has_udf(plan.predicate):
            return _split_filter(plan)
        case _:
            return plan


@dataclass(slots=True)
class _Calls:
    """The UDF calls so far, each with its column. Inner calls come before the calls that use them."""

    taken: set[str]
    columns: dict[UdfCall, str] = field(default_factory=dict)

    def extract(self, expr: Expr) -> Expr:
        """Return the expression with columns in place of calls."""
        return rewrite(expr, self._replace)

    def _replace(self, node: Expr) -> Expr:
        if not isinstance(node, UdfCall):
            return node
        if node not in self.columns:
            self.columns[node] = new_column(self.taken)
            self.taken.add(self.columns[node])
        return ColumnRef(self.columns[node])


def _split_project(project: Project) -> Plan:
    calls = _Calls(_names_in_use(project.child.schema, project.exprs))
    # Unnest and Star stand for several columns and have no name.
    conditional = with_conditions(project.exprs)
    exprs = [
        calls.extract(new) if isinstance(old, (Star, Unnest)) else named(calls.extract(new), old.name)
        for new, old in zip(conditional, project.exprs, strict=True)
    ]
    ordered = _generator_late(calls.columns)
    final_names = _final_names(ordered, exprs)
    renamed = {column: ColumnRef(name) for column, name in final_names.items()}
    steps = [(replace_columns(call, renamed), final_names.get(column, column)) for call, column in ordered]
    exprs = [without_needless_alias(replace_columns(expr, renamed)) for expr in exprs]
    exprs = [_without(expr, [column for _, column in steps]) for expr in exprs]
    outer = Project(_chain(project.child, steps, set().union(*map(columns_of, exprs))), tuple(exprs))
    return outer.child if is_identity(outer) else outer


def _split_filter(plan: Filter) -> Plan:
    schema = plan.child.schema
    calls = _Calls(_names_in_use(schema, [plan.predicate]))
    predicate = calls.extract(with_conditions([plan.predicate])[0])
    steps = list(calls.columns.items())
    for call, _ in steps:
        if call.udf.target.is_generator:
            raise InvalidArgumentError(
                f"filter needs one value per row, but {describe(call)} gives several rows; select it as a column first"
            )
    needed = columns_of(predicate) | set(schema.names if schema is not None else ())
    filtered = Filter(_chain(plan.child, steps, needed), predicate)
    if schema is None:
        return Project(filtered, (Star(exclude=tuple(column for _, column in steps)),))
    return Project(filtered, tuple(ColumnRef(name) for name in schema.names))


def _names_in_use(schema: Schema | None, exprs: Iterable[Expr]) -> set[str]:
    names = set(schema.names) if schema is not None else set()
    for expr in exprs:
        names |= columns_of(expr) | {expr.name}
    return names


def _generator_late(columns: dict[UdfCall, str]) -> list[tuple[UdfCall, str]]:
    """Return the calls in execution order: a generator multiplies rows, so calls that do not read it go first."""
    generators = [call for call in columns if call.udf.target.is_generator]
    if len(generators) > 1:
        listing = " and ".join(describe(call) for call in generators)
        raise InvalidArgumentError(f"A select may have only one generator, but has {listing}; use two selects")
    behind: set[str] = set()
    first, last = [], []
    for call, column in columns.items():
        if call.udf.target.is_generator or columns_of(call) & behind:
            behind.add(column)
            last.append((call, column))
        else:
            first.append((call, column))
    return first + last


def _final_names(steps: Sequence[tuple[UdfCall, str]], exprs: Sequence[Expr]) -> dict[str, str]:
    """Return the temporary columns that can have their final names from the start."""
    stars = [expr for expr in exprs if isinstance(expr, Star)]
    if any(isinstance(expr, Unnest) for expr in exprs):
        return {}
    outputs = {unalias(expr).name: expr.name for expr in reversed(exprs) if isinstance(unalias(expr), ColumnRef)}
    final: dict[str, str] = {}
    read_later = set().union(*map(columns_of, exprs))
    for call, column in reversed(steps):
        name = outputs.get(column)
        if name is not None and name not in read_later and all(name in star.exclude for star in stars):
            final[column] = name
        read_later |= columns_of(call)
    return final


def _without(expr: Expr, columns: Sequence[str]) -> Expr:
    """Exclude the columns added for calls from a Star; return any other expression unchanged."""
    if not isinstance(expr, Star):
        return expr
    return replace(expr, exclude=tuple(dict.fromkeys((*expr.exclude, *columns))))


def _chain(child: Plan, steps: Sequence[tuple[UdfCall, str]], needed: set[str]) -> Plan:
    """Return one UdfProject per call. Each keeps only the columns that are read after it, the last one ``needed``."""
    wanted: list[set[str]] = []
    for call, column in reversed(steps):
        wanted.append(needed - {column})
        needed = wanted[-1] | columns_of(call)
    for (call, column), keep in zip(steps, reversed(wanted), strict=True):
        kept = None if child.schema is None else tuple(name for name in child.schema.names if name in keep)
        child = UdfProject(child, call, column, kept)
    return child
