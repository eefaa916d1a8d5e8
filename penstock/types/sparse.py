"""Sparse tensors: structs of the values that are not zero, their places in the flat tensor, and its shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types.datatype import DataType
from penstock.types.encode import encode


def to_sparse(array: pa.Array, dtype: DataType) -> pa.Array:
    """Return tensors as sparse ones."""
    return encode([None if row is None else _sparse(row) for row in array.to_pylist()], dtype)


def to_dense(array: pa.Array, dtype: DataType) -> pa.Array:
    """Return sparse tensors as full ones."""
    return encode([None if row is None else _dense(row, dtype) for row in array.to_pylist()], dtype)


def _sparse(tensor: np.ndarray[Any, Any]) -> dict[str, Any]:
    flat = tensor.reshape(-1)
    places = np.flatnonzero(flat)
    return {"values": flat[places], "indices": places, "shape": list(tensor.shape)}


def _dense(row: dict[str, Any], dtype: DataType) -> np.ndarray[Any, Any]:
    flat = np.zeros(int(np.prod(row["shape"])), dtype.inner.arrow.to_pandas_dtype())
    flat[np.asarray(row["indices"], np.int64)] = row["values"]
    return flat.reshape(row["shape"])
