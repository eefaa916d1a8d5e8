"""Kernels that turn probabilities into the answers of ``decide``, all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.ai.decisions.questions import Question, Questions
from penstock.expr.registry import Value
from penstock.expr.signatures import strict
from penstock.types import DataType
from penstock.types.ndarrays import NDArray

PROBABILITIES = DataType.list(DataType.float64())
"""The probabilities of the options of all questions, in order; null for those of a question that was refused."""


def _answers_type(dtype: DataType, *, questions: Questions) -> DataType:
    return DataType.struct({name: question.dtype for name, question in questions})


@strict("decisions", _answers_type)
def decisions(value: Value, *, questions: Questions) -> Value:
    """Return the answers to ``questions``, whose probabilities come first in each list; null for a null list."""
    table, is_null = _table(value)
    arrays, start = [], 0
    for _, question in questions:
        stop = start + len(question.options)
        arrays.append(_answers(question, table[:, start:stop]))
        start = stop
    fields = [pa.field(name, each.type) for (name, _), each in zip(questions, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(is_null))


@strict("list_items", lambda dtype, **_: dtype)
def list_items(value: Value, *, positions: tuple[int, ...]) -> Value:
    """Return the items at ``positions`` of lists that all have the same length."""
    table, is_null = _table(value)
    chosen = table[:, list(positions)]
    offsets = np.arange(len(table) + 1, dtype=np.int32) * len(positions)
    items = pa.array(chosen.reshape(-1), from_pandas=True)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=value.type, mask=pa.array(is_null))


def _table(value: Any) -> tuple[NDArray, NDArray]:
    """Return lists of equal lengths as rows of a table, NaN for null, and the rows that are null."""
    lists = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    is_null = lists.is_null().to_numpy(zero_copy_only=False)
    items = lists.flatten().to_numpy(zero_copy_only=False)
    num_rows = len(lists) - int(is_null.sum())
    table = np.full((len(lists), len(items) // num_rows if num_rows else 0), np.nan)
    if num_rows:
        table[~is_null] = items.reshape(num_rows, -1)
    return table, is_null


def _answers(question: Question, table: NDArray) -> pa.StructArray:
    if not table.shape[1]:  # all rows are null
        table = np.full((len(table), len(question.options)), np.nan)
    refused = np.isnan(table[:, 0])
    best = np.where(refused, 0, np.nan_to_num(table, nan=-1).argmax(1))
    if question.kind == "yes_no":
        value, probability = pa.array(best == 0, mask=refused), table[:, 0]
    else:
        value = pa.array(question.options).take(pa.array(best, mask=refused))
        probability = table[np.arange(len(table)), best]
    columns = [pa.array(np.ascontiguousarray(each), mask=refused) for each in table.T]
    by_option = pa.StructArray.from_arrays(columns, question.options, mask=pa.array(refused))
    arrays = {
        "value": value,
        "probability": pa.array(probability, mask=refused),
        "probabilities": by_option,
        "refused": pa.array(refused),
    }
    if question.kind == "score":
        with np.errstate(invalid="ignore", divide="ignore"):
            arrays["score"] = pa.array(table @ np.arange(table.shape[1]) / table.sum(1), mask=refused)
    return pa.StructArray.from_arrays(list(arrays.values()), list(arrays))
