"""Results that were computed before: taken from the ledger for functions with ``cache=True``.

The key is what determines a result: the function's code with all it refers to, its constant arguments, the type of the
results, and the values that a row gives it; for a function of batches, those of the whole batch, as it may mix rows.
A result of a row is kept as soon as it is there. What failed is not kept.
"""

from __future__ import annotations

import logging
import marshal
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.types as pt

from penstock.cache.keys import key_of
from penstock.cache.ledger.open_ledgers import current_ledger, job_folder
from penstock.config import get_config
from penstock.errors import InvalidArgumentError
from penstock.expr.nodes import Literal, PythonValue
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.identity.code_keys import keyed
from penstock.plan.stages import CallBatch, CallUdf, Stage
from penstock.protocols import Ledger
from penstock.types.content import ContentHash
from penstock.types.ipc import from_ipc, to_ipc

log = logging.getLogger("penstock.udf")


# --- in the driver ----------------------------------------------------------------------------------------------------


def with_cache_keys(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return stages whose functions with ``cache=True`` know their key; raise if there is nowhere to keep results.

    Called when a query begins: what a function refers to may be defined after the function is.
    """
    return tuple(_with_key(stage) for stage in stages)


def _with_key(stage: Stage) -> Stage:
    match stage.work:
        case CallUdf(call=call) if call.udf.cache:
            constants = {str(n): _constant(each) for n, each in enumerate(call.children) if _is_constant(each)}
            names = [name for name, _ in call.kwargs]
            spec = replace(call.udf, cache_key=_key(call.udf, (constants, names)))
            return replace(stage, work=replace(stage.work, call=replace(call, udf=spec)))
        case CallBatch(spec=batch_spec) if batch_spec.cache:
            keyed_spec = replace(batch_spec, cache_key=_key(batch_spec, None))
            return replace(stage, work=replace(stage.work, spec=keyed_spec))
        case _:
            return stage


def _key(spec: UdfSpec | BatchSpec, constants: Any) -> bytes:
    if not (job_folder() or get_config().cache_dir):
        raise InvalidArgumentError(
            f"{spec.name!r} has cache=True, and there is no place to keep its results in; set "
            'ps.set_config(cache_dir="...") or PENSTOCK_CACHE_DIR, or write with resume=True.'
        )
    found = keyed((spec, constants))
    if found.opaque:
        log.warning(
            "%r has cache=True and uses %s, of which nothing but the type can be told: results are kept as if all of "
            "that type were equal",
            *(spec.name, ", ".join(found.opaque)),
        )
    return found.digest


def _is_constant(expr: Any) -> bool:
    return isinstance(expr, Literal | PythonValue)


def _constant(expr: Any) -> Any:
    return expr.value if isinstance(expr, PythonValue) else expr.scalar


# --- in workers -------------------------------------------------------------------------------------------------------


def kept_results(spec: UdfSpec | BatchSpec) -> KeptResults | None:
    """Return what is kept of a function's results, None where that was not asked for. Whoever asks closes it."""
    if not spec.cache_key:
        return None
    ledger = current_ledger()
    return None if ledger is None else KeptResults(ledger, spec.cache_key, spec.name)


class KeptResults:
    """The results of one function, by what it was given. Any number of threads may use it."""

    def __init__(self, ledger: Ledger, function_key: bytes, name: str) -> None:
        self._ledger, self._prefix, self._name = ledger, function_key, name
        self._has_told = False
        self.close = ledger.close

    # --- of rows ---

    def row_keys(self, columns: Sequence[pa.Array], num_rows: int, names: Sequence[str] = ()) -> list[bytes]:
        """Return the key of each row of what the function is given; ``names`` where it sees those, too."""
        prefix = self._prefix + b"row" + marshal.dumps(tuple(names), 2)
        lists = [_plain_values(column) for column in columns]
        # Of version 2, which has no references: equal values are equal bytes, whether they are one object or two.
        rows = zip(*lists, strict=True) if lists else ((),) * num_rows
        return [key_of(prefix + marshal.dumps(row, 2)) for row in rows]

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """Return the results that are there. One look into the ledger for all; reads files."""
        found = self._ledger.get(list(dict.fromkeys(keys)))
        return {key: pickle.loads(value) for key, value in found.items()}

    def put(self, key: bytes, result: Any) -> None:
        """Keep a result, if it can be."""
        try:
            try:
                value = pickle.dumps(result, 5)
            except (pickle.PicklingError, AttributeError, TypeError):  # of a class that only the user's script has
                value = cloudpickle.dumps(result, 5)
        except Exception as exc:
            if not self._has_told:
                self._has_told = True
                log.warning(
                    "%r has cache=True, but gave a %s that cannot be kept: %s", self._name, type(result).__name__, exc
                )
            return
        self._ledger.put(key, value)

    # --- of batches ---

    def batch_key(self, columns: Sequence[pa.Array], num_rows: int, names: Sequence[str] = ()) -> bytes:
        """Return the key of a batch: of all its values in order, and their types."""
        given = marshal.dumps((num_rows, *names), 2)
        return key_of(self._prefix + b"batch" + given + _digest(columns))

    def get_batches(self, key: bytes) -> list[pa.RecordBatch] | None:
        """Return what a batch gave, None if that is not there."""
        value = self._ledger.get([key]).get(key)
        return None if value is None else [from_ipc(pa.py_buffer(each)) for each in pickle.loads(value)]

    def put_batches(self, key: bytes, batches: Sequence[pa.RecordBatch]) -> None:
        self._ledger.put(key, pickle.dumps([to_ipc(batch).to_pybytes() for batch in batches], 5))


def to_compute(
    keys: Sequence[bytes], found: dict[bytes, Any], batch: pa.RecordBatch, can_share: bool
) -> tuple[list[int], pa.RecordBatch]:
    """Return the rows that are to be computed, and those rows; of equal ones the first where they ``can_share``."""
    first = {key: row for row, key in reversed(list(enumerate(keys)))} if can_share else {}
    rows = [row for row, key in enumerate(keys) if key not in found and (not can_share or first[key] == row)]
    return rows, batch if len(rows) == len(keys) else batch.take(pa.array(rows, pa.int64()))


def in_place(keys: Sequence[bytes], found: dict[bytes, Any], rows: Sequence[int], results: Sequence[Any]) -> list[Any]:
    """Return the results of all rows: those that were ``found``, and those of ``rows``, which were computed."""
    computed = dict(zip(rows, results, strict=True))
    shared = {keys[row]: result for row, result in computed.items()}
    return [
        computed[row] if row in computed else found[key] if key in found else shared[key]
        for row, key in enumerate(keys)
    ]


def keeping(function: Callable[..., Any], kept: KeptResults, is_generator: bool) -> Callable[..., Any]:
    """Return a function of a key and a row's arguments that keeps what it gives."""

    def call(key: bytes, *args: Any, **kwargs: Any) -> Any:
        result = _whole(function(*args, **kwargs), is_generator)
        kept.put(key, result)
        return result

    return call


def keeping_async(function: Callable[..., Any], kept: KeptResults, is_generator: bool) -> Callable[..., Any]:
    """Return an async function of a key and a row's arguments that keeps what it gives."""

    async def call(key: bytes, *args: Any, **kwargs: Any) -> Any:
        result = _whole(await function(*args, **kwargs), is_generator)
        kept.put(key, result)
        return result

    return call


def _whole(result: Any, is_generator: bool) -> Any:
    return list(result) if isinstance(result, Iterator) or (is_generator and result is not None) else result


def _plain_values(column: pa.Array) -> list[Any]:
    """Return values that marshal takes: as Python has them, or else a digest of each."""
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
