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
"""The probability of each option, question after question; null for all options of a refused question."""


def _answers_type(dtype: DataType, *, questions: Questions) -> DataType:
    return DataType.struct({name: question.dtype for name, question in questions})


@strict("decisions", _answers_type)
def decisions(value: Value, *, questions: Questions) -> Value:
    """Return the answers to ``questions``, whose probabilities come first in each list; null for a null list."""
    table, mask = _table(value)
    num_options = sum(len(question.options) for _, question in questions)
    table = table[:, :num_options] if table.shape[1] else np.full((len(table), num_options), np.nan)
    columns = pa.array(table.T.reshape(-1), from_pandas=True)  # converted once: NaN is null
    arrays, start = [], 0
    for _, question in questions:
        stop = start + len(question.options)
        shares = [columns.slice(number * len(table), len(table)) for number in range(start, stop)]
        arrays.append(_answers(question, table[:, start:stop], shares))
        start = stop
    return pa.StructArray.from_arrays(arrays, [name for name, _ in questions], mask=mask)


@strict("list_items", lambda dtype, **_: dtype)
def list_items(value: Value, *, positions: tuple[int, ...]) -> Value:
    """Return the items at ``positions`` of lists that all have the same length."""
    table, mask = _table(value)
    chosen = table[:, positions]
    offsets = np.arange(len(table) + 1, dtype=np.int32) * len(positions)
    items = pa.array(chosen.reshape(-1), from_pandas=True)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=value.type, mask=mask)


def _table(value: Any) -> tuple[NDArray, pa.Array | None]:
    """Return lists of equal length as the rows of a table, with NaN for null. Also return a mask of the null rows; None
    if no row is null.
    """
    lists = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    items, num_rows = lists.flatten().to_numpy(zero_copy_only=False), len(lists) - lists.null_count
    length = len(items) // num_rows if num_rows else 0
    if num_rows == len(lists):
        return items.reshape(num_rows, length), None
    mask = lists.is_null()
    table = np.full((len(lists), length), np.nan)
    table[~mask.to_numpy(zero_copy_only=False)] = items.reshape(num_rows, length)
    return table, mask


def _answers(question: Question, table: NDArray, shares: list[pa.Array]) -> pa.StructArray:
    """Return the answers to one question; ``shares`` are the columns of ``table``."""
    refused = np.isnan(table[:, 0])
    mask = pa.array(refused) if refused.any() else None
    best = table.argmax(1) if mask is None else np.nan_to_num(table, nan=-1).argmax(1)
    if question.kind == "yes_no":
        value, probability = pa.array(best == 0, mask=refused), shares[0]
    else:
        value = pa.array(np.array(question.options, object)[best], pa.string(), mask=refused)
        probability = pa.array(table[np.arange(len(table)), best], from_pandas=True)
    arrays = {
        "value": value,
        "probability": probability,
        "probabilities": pa.StructArray.from_arrays(shares, question.options, mask=mask),
        "refused": pa.array(refused),
    }
    if question.kind == "score":
        with np.errstate(invalid="ignore", divide="ignore"):
            arrays["score"] = pa.array(table @ np.arange(table.shape[1]) / table.sum(1), from_pandas=True)
    return pa.StructArray.from_arrays(list(arrays.values()), list(arrays))
