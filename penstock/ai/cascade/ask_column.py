"""The column of ``ask``: the answer of one model, or of a model and a cheap judge with a promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.cascade.statements import Statement, StatementModel
from penstock.ai.decisions.decided_labels import is_decided
from penstock.ai.model_columns import embedding_column, resolve_call
from penstock.ai.provider import TextEmbedding
from penstock.errors import InvalidArgumentError, TypeMismatchError, shortened
from penstock.expr.column import Expression, col
from penstock.expr.kinds import BOOL, TEXT, is_vector
from penstock.expr.nodes import ColumnRef, UdfCall, columns_of, walk
from penstock.expr.resolve import dtype_of
from penstock.expr.templates import filled
from penstock.expr.udf import Builtin, Target, UdfSpec
from penstock.plan.cascade import Cascade
from penstock.plan.cascade_relations import Promise
from penstock.types import DataType, Field, Schema


def ask_column(statement: Statement, model: StatementModel, cheap: Any, promise: Promise) -> Expression:
    """Return whether a statement is true of each row."""
    promise.check()
    answer = model.answer(statement)
    if cheap is None:
        return answer
    score, vector = _judges(cheap, statement, model)
    nodes = [None if each is None else each._node for each in (score, vector)]
    calls = [answer._node, *(each for each in nodes if each is not None)]
    columns = tuple(sorted(set[str]().union(*map(columns_of, calls))))
    title = f"ask {shortened(repr(statement.text), 40)}"
    cascade = Cascade(title, columns, answer._node, nodes[0], nodes[1], promise)
    identity = {
        "statement": statement.text,
        "models": [
            dict(part.udf.builtin.identity) for node in calls for part in walk(node) if isinstance(part, UdfCall)
        ],
        "promise": f"precision {promise.precision}, recall {promise.recall}, confidence {promise.confidence}",
    }
    builtin = Builtin(tuple(identity.items()), InputCheck(cascade), cascade=cascade)
    spec = UdfSpec("ask", Target(ask_column), BOOL, builtin=builtin)
    return Expression(UdfCall(spec, tuple(map(ColumnRef, columns))))


@dataclass(frozen=True)
class InputCheck:
    """Checks the types of the columns that a cascade reads."""

    cascade: Cascade

    def __call__(self, *dtypes: DataType) -> None:
        schema = Schema([Field(name, dtype) for name, dtype in zip(self.cascade.columns, dtypes, strict=False)])
        for call in self.cascade.calls:
            dtype_of(call, schema)
        if self.cascade.score is not None:
            dtype = dtype_of(self.cascade.score, schema)
            if not (dtype.is_numeric() or dtype.is_boolean() or is_vector(dtype)):
                raise TypeMismatchError(f"ask: cheap= needs a number or a vector for each row; it is {dtype}.")


def _judges(cheap: Any, statement: Statement, model: StatementModel) -> tuple[Expression | None, Expression | None]:
    """Return the score of a cheap judge, and the vectors of a judge that learns."""
    if isinstance(cheap, Expression):
        return cheap, None
    if not isinstance(cheap, str):
        raise InvalidArgumentError(
            "ask: cheap= is 'auto', 'embeddings', the name of a model, or an expression with a number or a vector for "
            f"each row; got {cheap!r}."
        )
    if cheap == "embeddings":
        return None, _vectors(statement)
    name = model.provider.default_models.get("decide") if cheap == "auto" else cheap
    is_another = None not in (model.name, name) and name != model.name
    if cheap == "auto" and not (is_another and is_decided("decide", model.provider, name)):
        return None, _vectors(statement)
    options = {"on_error": "null", **{each: value for each, value in model.options.items() if each == "cache"}}
    score = replace(model, name=name, options=options).decision(statement)["probability"]
    return score, _vectors(statement) if cheap == "auto" else None


def _vectors(statement: Statement) -> Expression:
    """Return the vectors of the statement's texts."""
    names = statement.columns
    text = filled([*(f"{name}: " for name in names), ""], names) if len(names) > 1 else col(names[0])
    fields = {"dimensions": None, "long_input": "truncate"}
    return embedding_column(resolve_call(TextEmbedding, None, None, {}, fields), text, TEXT)
