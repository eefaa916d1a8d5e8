"""Number the rows of reads, so that a function that fails on a row can name it.

A filter, an explode, a limit and a call keep the column of numbers. A sort, a join, a group-by, an unpivot and a
function that makes new rows lose the numbers, so functions after them count the rows of their own input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.expr.nodes import ColumnRef, Star
from penstock.plan.stages import (
    CallBatch,
    CallUdf,
    ExplodeLists,
    NumberRows,
    Read,
    Select,
    Stage,
    Step,
    TakeSample,
    Transform,
    Where,
    Work,
)
from penstock.protocols import NumberedSource
from penstock.types import DataType, Field, Schema
from penstock.types.row_numbers import ROW_NUMBER, RowInputs

_KEEPING = Select | Where | ExplodeLists | TakeSample | NumberRows


def with_row_numbers(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with the column of row numbers from reads up to the last function that can use it.

    [Read(a), CallUdf(f, keep=(a,))]  ->  [Read(a, row), CallUdf(f, keep=(a,))]
    """
    can_give: list[bool] = []
    for stage in stages:
        can_give.append(_keeps_numbers(stage.work) and all(can_give[source] for source in stage.inputs))
    gives = [False] * len(stages)
    for index in reversed(range(len(stages))):
        stage = stages[index]
        for source in stage.inputs:
            gives[source] = can_give[source] and (gives[index] or isinstance(stage.work, CallUdf | CallBatch))
    if not any(gives):
        return tuple(stages)
    firsts, inputs = dict[int, int](), list[object]()
    for index, stage in enumerate(stages):
        if gives[index] and isinstance(stage.work, Read) and isinstance(stage.work.source, NumberedSource):
            firsts[index] = len(inputs)
            inputs += stage.work.source.row_inputs()
    row_inputs = RowInputs(tuple(inputs))

    def numbered(index: int, stage: Stage) -> Stage:
        has_numbers = any(gives[source] for source in stage.inputs)
        match stage.work:
            case Read() as read if gives[index]:
                return replace(stage, work=_numbered_read(read, firsts[index]))
            case Transform(steps) if gives[index]:
                return replace(stage, work=Transform(_keeping(steps)))
            case CallUdf() as call if has_numbers:
                return replace(stage, work=_numbered_call(call, row_inputs, gives[index]))
            case CallBatch() as call if has_numbers:
                return replace(stage, work=replace(call, row_inputs=row_inputs))
            case _:
                return stage

    return tuple(numbered(index, stage) for index, stage in enumerate(stages))


def _keeps_numbers(work: Work | None) -> bool:
    """Return whether the output of a stage can carry row numbers: its input's, or its own if it reads."""
    match work:
        case Read(source, steps=steps):
            return isinstance(source, NumberedSource) and bool(source.row_inputs()) and _are_keeping(steps)
        case Transform(steps) | CallUdf(steps=steps):
            return _are_keeping(steps)
        case _:
            return work is None


def _are_keeping(steps: Sequence[Step]) -> bool:
    return all(isinstance(step, _KEEPING) for step in steps)


def _numbered_read(read: Read, first_input: int) -> Read:
    schema = None if read.schema is None else Schema([*read.schema, Field(ROW_NUMBER, DataType.int64())])
    request = replace(read.request, first_input=first_input)
    return replace(read, request=request, steps=_keeping(read.steps), schema=schema)


def _numbered_call(call: CallUdf, row_inputs: RowInputs, is_given_on: bool) -> CallUdf:
    if is_given_on:
        keep = None if call.keep is None else (*call.keep, ROW_NUMBER)
        return replace(call, keep=keep, steps=_keeping(call.steps), row_inputs=row_inputs)
    drop = (Select((Star((ROW_NUMBER,)),)),) if call.keep is None else ()
    return replace(call, steps=(*drop, *call.steps), row_inputs=row_inputs)


def _keeping(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(map(_with_number, steps))


def _with_number(step: Step) -> Step:
    if not isinstance(step, Select) or any(isinstance(expr, Star) for expr in step.exprs):
        return step
    return Select((*step.exprs, ColumnRef(ROW_NUMBER)))
