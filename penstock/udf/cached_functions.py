"""Cached results of functions with ``cache=True``.

The key holds everything that determines a result: the function's code with all it refers to, its constant arguments,
the type of the results, and the values of the row. A function of batches may mix rows, so its key holds the values of
the whole batch. The result of a row is stored as soon as it is computed. Failures are not stored.
"""

from __future__ import annotations

import logging
import marshal
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.types as pt

from penstock.cache.keys import key_of
from penstock.cache.ledger.open_ledgers import current_ledger
from penstock.cache.memo import Codec, Memo
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.protocols import Ledger
from penstock.types.digests import ContentHash
from penstock.types.ipc import from_ipc, to_ipc

log = logging.getLogger("penstock.udf")


class FunctionMemo:
    """Cached results of one function, by its arguments. Any number of threads may use it."""

    def __init__(self, ledger: Ledger, spec: UdfSpec | BatchSpec) -> None:
        self._prefix, self._name, self._is_generator = spec.cache_key, spec.name, spec.target.is_generator
        self._has_warned = False
        self.rows = Memo(ledger, Codec(self._encode, pickle.loads))
        self.batches = Memo(ledger, BATCHES)
        self.close = ledger.close

    @staticmethod
    def open(spec: UdfSpec | BatchSpec) -> FunctionMemo | None:
        """Return the memo of a function with ``cache=True``, None for others. The caller must close it."""
        ledger = current_ledger() if spec.cache_key else None
        return None if ledger is None else FunctionMemo(ledger, spec)

    def row_keys(self, columns: Sequence[pa.Array], num_rows: int, names: Sequence[str] = ()) -> list[bytes]:
        """Return a key for each row of arguments; ``names`` are part of it for functions that see column names."""
        prefix = self._prefix + b"row" + marshal.dumps(tuple(names), 2)
        lists = [_plain_values(column) for column in columns]
        # Version 2 has no references: equal values give equal bytes, even if they are one object.
        rows = zip(*lists, strict=True) if lists else ((),) * num_rows
        return [key_of(prefix + marshal.dumps(row, 2)) for row in rows]

    def batch_key(self, columns: Sequence[pa.Array], num_rows: int, names: Sequence[str] = ()) -> bytes:
        """Return the key of a batch: a digest of all its values in order, and their types."""
        return key_of(self._prefix + b"batch" + marshal.dumps((num_rows, *names), 2) + _digest(columns))

    def store(self, key: bytes, result: Any) -> Any:
        """Store the result of a row and return it. A generator or an iterator is run to its end first."""
        if isinstance(result, Iterator) or (self._is_generator and result is not None):
            result = list(result)
        self.rows.put(key, result)
        return result

    def _encode(self, result: Any) -> bytes | None:
        try:
            try:
                return pickle.dumps(result, 5)
            except (pickle.PicklingError, AttributeError, TypeError):  # a class that only the user's script defines
                return bytes(cloudpickle.dumps(result, 5))
        except Exception as exc:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "%r has cache=True, but its result of type %s cannot be pickled and is not cached: %s",
                    *(self._name, type(result).__name__, exc),
                )
            return None


BATCHES = Codec(
    lambda batches: pickle.dumps([to_ipc(batch).to_pybytes() for batch in batches], 5),
    lambda raw: [from_ipc(pa.py_buffer(each)) for each in pickle.loads(raw)],
)


def _plain_values(column: pa.Array) -> list[Any]:
    """Return the values as Python objects that marshal accepts, or a digest of each."""
    if _is_plain(column.type):
        values: list[Any] = column.to_pylist()
        return values
    return [_digest([column.slice(row, 1)]) for row in range(len(column))]


def _digest(columns: Sequence[pa.Array]) -> bytes:
    hashed = ContentHash()
    hashed.add_all(columns)
    return hashed.digest()


def _is_plain(dtype: pa.DataType) -> bool:
    if pt.is_struct(dtype):
        return all(_is_plain(field.type) for field in dtype)
    if pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype):
        return _is_plain(dtype.value_type)
    simple = (pt.is_integer, pt.is_string, pt.is_large_string, pt.is_binary, pt.is_boolean, pt.is_null)
    return any(check(dtype) for check in simple) or pt.is_float64(dtype) or pt.is_float32(dtype)
