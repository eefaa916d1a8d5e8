"""Values that each row gets by itself: its number, a random number, a UUID."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.arrays import on_arrays
from penstock.expr.column import Expression, call
from penstock.expr.kinds import INT64, INTEGER
from penstock.expr.public_functions import function
from penstock.expr.registry import kernel
from penstock.expr.signatures import strict, takes
from penstock.functions.hashing import GOLDEN, mix
from penstock.types import DataType, normalize
from penstock.types.plain import arrow_array, numpy_values

__all__ = ["monotonically_increasing_id", "random_int", "uuid"]


@function
def monotonically_increasing_id() -> Expression:
    """Number the rows from 0, in input order; only in ``select`` and ``with_column``.

    >>> ps.from_pydict({"x": ["a", "b"]}).with_column("id", monotonically_increasing_id()).to_pydict()
    {'x': ['a', 'b'], 'id': [0, 1]}
    """
    return call("monotonically_increasing_id")


def _refuse(*dtypes: DataType) -> DataType:
    raise InvalidArgumentError(
        "The numbers of rows, random numbers and UUIDs are made by select and with_column; make the column there first"
    )


kernel("monotonically_increasing_id", _refuse)(lambda: None)


@function
def random_int(low: int, high: int, seed: int | None = None) -> Expression:
    """Return a random integer from ``low`` to ``high``, both included; the same for each row with the same ``seed``.

    >>> values = ps.range(100).select(random_int(1, 3, seed=7).alias("x")).to_pydict()["x"]
    >>> sorted(set(values))
    [1, 2, 3]
    """
    if not all(isinstance(bound, int) for bound in (low, high)) or not -(2**63) <= low <= high < 2**63:
        raise InvalidArgumentError(f"random_int takes low <= high, both int64; got {low!r} and {high!r}")
    seed = secrets.randbits(63) if seed is None else int(seed)
    return call("random_int", monotonically_increasing_id(), low=low, high=high, seed=seed)


@strict("random_int", takes(INTEGER, returns=INT64))
@on_arrays
def _random_int(rows: pa.Array, *, low: int, high: int, seed: int) -> pa.Array:
    numbers = _random(rows, seed)
    if high - low < 2**64 - 1:
        numbers = numbers % np.uint64(high - low + 1)
    return arrow_array((numbers + np.uint64(low % 2**64)).view(np.int64))


def _random(rows: pa.Array, seed: int) -> Any:
    start = np.uint64(seed % 2**64)
    return mix(mix(numpy_values(rows).astype(np.uint64) + GOLDEN) ^ mix(np.array([start]) + GOLDEN))


@function
def uuid(version: Literal["v4", "v7"] = "v4") -> Expression:
    """Return a new random UUID as text; with ``version="v7"`` one that sorts by the time of the query.

    >>> [len(value) for value in ps.range(2).select(uuid().alias("x")).to_pydict()["x"]]
    [36, 36]
    """
    check_choice("uuid: version", version, ("v4", "v7"))
    seeds = (secrets.randbits(63), secrets.randbits(63))
    return call("uuid", monotonically_increasing_id(), version=int(version[1]), seeds=seeds)


@strict("uuid", takes(INTEGER, returns=DataType.string()))
@on_arrays
def _uuid(rows: pa.Array, *, version: int, seeds: tuple[int, int]) -> pa.Array:
    import time

    bits = np.stack([_random(rows, seed) for seed in seeds], axis=1)
    if version == 7:
        bits[:, 0] = (bits[:, 0] & np.uint64(0xFFFF)) | np.uint64(time.time_ns() // 10**6 << 16)
    bits[:, 0] = (bits[:, 0] & ~np.uint64(0xF000)) | np.uint64(version << 12)
    bits[:, 1] = (bits[:, 1] & np.uint64(2**62 - 1)) | np.uint64(1 << 63)
    content = pa.py_buffer(bits.astype(">u8"))
    storage = pa.Array.from_buffers(pa.binary(16), len(rows), [None, content])
    return normalize(pa.ExtensionArray.from_storage(pa.uuid(), storage))
