"""``ask`` with a cheap judge, as plan nodes: hold all rows, label a sample of them, then route the others.

    Project          the columns that are needed later, and the vector of a learned judge
    DrawSample       holds all rows; before them it gives copies of random rows: the pilot, then candidates
    Project          the label and the score of the pilot
    SizeSample       keeps as many candidates as the pilot calls for: the calibration sample
    Project          its labels and scores
    Calibrate        takes both samples; gives every row the thresholds, and rows of the samples their labels
    Project          the scores of the other rows, if the judge is useful
    Route            the answers of the samples and of the judge
    Project          the model's answers for the rows between the thresholds

Every call is an ordinary one, so the ledger, limits, budgets, failures and Ray treat it as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import InvalidArgumentError
from penstock.expr.kinds import is_vector
from penstock.expr.nodes import Alias, Call, Cast, ColumnRef, Expr, Literal, Star, UdfCall, rewrite, unalias, walk
from penstock.expr.resolve import dtype_of
from penstock.plan.cascade_relations import (
    ANSWER,
    ARGUMENT,
    IS_ASKED,
    IS_SCORED,
    LABEL,
    PROBE,
    SCORE,
    VECTOR,
    Calibrate,
    DrawSample,
    Promise,
    Route,
    SizeSample,
)
from penstock.plan.nodes import Plan, Project, Relate, UdfProject
from penstock.plan.substitution import is_new_column, named, replace_columns
from penstock.protocols import Priced
from penstock.types import DataType
from penstock.types.frozen import frozen
from penstock.types.plain import arrow_scalar


@frozen
class Cascade:
    """A call of ``ask`` with a cheap judge. The expressions are over ``columns``, the arguments of the call.

    ``score`` is a number for each row. ``vector`` is the input of a judge that learns from the pilot. There is at least
    one of the two. A ``score`` whose type turns out to be a vector is used as ``vector``.
    """

    title: str
    columns: tuple[str, ...]
    model: Expr
    score: Expr | None
    vector: Expr | None
    promise: Promise

    @property
    def calls(self) -> tuple[Expr, ...]:
        """The expressions with the calls that this one becomes."""
        return tuple(each for each in (self.model, self.score, self.vector) if each is not None)

    def expanded(self, plan: UdfProject) -> Plan:
        """Return the nodes that compute the column of this call."""
        if plan.call.condition is not None:
            raise InvalidArgumentError(
                "ask: with cheap= it cannot stand in a branch of if_else or coalesce, because it needs all rows; make "
                "it a column first."
            )
        columns, added = _columns(plan, self.columns)
        model, score, vector = (
            None if each is None else replace_columns(each, columns) for each in (self.model, self.score, self.vector)
        )
        assert model is not None
        read = {column.column for column in columns.values()}
        rows: Plan = Project(plan.child, (*_kept(plan), *added))
        if vector is None and score is not None and rows.schema is not None and is_vector(dtype_of(score, rows.schema)):
            score, vector = None, score
        if vector is not None:
            rows = Project(rows, (Star(), Alias(unalias(vector), VECTOR)))
            read.add(VECTOR)
        rows = Relate((rows,), DrawSample(tuple(sorted(read))))
        is_pilot, is_sample = _compare("equal", PROBE, 0), _compare("greater", PROBE, 0)
        rows = _labelled(rows, is_pilot, model, score, "pilot")
        rows = Relate((rows,), SizeSample(self.promise))
        rows = _labelled(rows, is_sample, model, score, "sample")
        rows = Relate((rows,), Calibrate(self.title, self.promise, vector is not None))
        if score is not None:
            scored = _if_else(ColumnRef(IS_SCORED), _named_calls(_number(score), "judge"), ColumnRef(SCORE))
            rows = Project(rows, (Star(exclude=(SCORE,)), Alias(scored, SCORE)))
        rows = Relate((rows,), Route(self.title, _billed_as(model)))
        asked = _named_calls(model, "ask")
        answer = Alias(_if_else(ColumnRef(IS_ASKED), asked, ColumnRef(ANSWER)), plan.column)
        others = _kept(plan, (IS_ASKED, ANSWER, *(name for name in read if is_new_column(name))))
        return Project(rows, (*(each for each in others if each.name != plan.column), answer))


def _billed_as(model: Expr) -> tuple[str, str] | None:
    """Return the name of the expensive model in the account of the query, None if its calls cost nothing."""
    calls = [part.udf for part in walk(model) if isinstance(part, UdfCall)]
    models = [each for call in calls for each in call.target.init_args if isinstance(each, Priced)]
    return models[0].billed_as if models else None


def _kept(plan: UdfProject, hidden: tuple[str, ...] = ()) -> list[Expr]:
    """Return the columns that the call keeps; a star stands for unknown columns, except for ``hidden`` columns."""
    if plan.keep is not None:
        return [ColumnRef(name) for name in plan.keep]
    schema = plan.child.schema
    return [Star(exclude=hidden)] if schema is None else [ColumnRef(name) for name in schema.names]


def _columns(plan: UdfProject, names: Sequence[str]) -> tuple[dict[str, ColumnRef], list[Expr]]:
    """Return the columns of the call's arguments by name, and the expressions of columns to add."""
    kept, columns, added = _kept(plan), dict[str, ColumnRef](), list[Expr]()
    for name, arg in zip(names, plan.call.args, strict=True):
        bare = unalias(arg)
        columns[name] = bare if isinstance(bare, ColumnRef) else ColumnRef(f"{ARGUMENT}{len(added)}")
        if columns[name] not in kept and not (kept == [Star()] and columns[name] is bare):
            added.append(named(bare, columns[name].column))
    return columns, added


def _labelled(rows: Plan, is_asked: Expr, model: Expr, score: Expr | None, part: str) -> Plan:
    """Return the rows, with labels and scores where ``is_asked``. ``part`` of the sample names the calls."""
    is_first = part == "pilot"
    labels, scores = (NULL_FLAG, NULL_NUMBER) if is_first else (ColumnRef(LABEL), ColumnRef(SCORE))
    label = _if_else(is_asked, _named_calls(model, f"ask {part}"), labels)
    scored = scores if score is None else _if_else(is_asked, _named_calls(_number(score), f"judge {part}"), scores)
    others = Star(exclude=() if is_first else (LABEL, SCORE))
    return Project(rows, (others, Alias(label, LABEL), Alias(scored, SCORE)))


def _named_calls(expr: Expr, name: str) -> Expr:
    """Return the expression whose calls have a name that tells their stages apart."""

    def change(node: Expr) -> Expr:
        return replace(node, udf=replace(node.udf, name=name)) if isinstance(node, UdfCall) else node

    return rewrite(expr, change)


NULL_FLAG = Literal(arrow_scalar(None, DataType.bool().arrow))
NULL_NUMBER = Literal(arrow_scalar(None, DataType.float64().arrow))


def _number(expr: Expr) -> Expr:
    return Cast(unalias(expr), DataType.float64())


def _if_else(test: Expr, if_true: Expr, if_false: Expr) -> Expr:
    return Call("if_else", (test, if_true, if_false))


def _compare(function: str, column: str, value: int) -> Expr:
    return Call(function, (ColumnRef(column), Literal(arrow_scalar(value))))
