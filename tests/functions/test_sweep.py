"""Every function with every type, as a column and as an option, gives a result or an error of Penstock."""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import functions
from penstock.errors import ComputeError, InvalidArgumentError, PenstockError
from penstock.expr.column import Expression, col
from penstock.expr.evaluate import Program
from penstock.expr.nodes import has_udf
from penstock.types import Schema, to_arrow_array

ZONED = pa.timestamp("us", "Europe/Paris")
VALUES: dict[str, Any] = {
    "bool": [True, False, None],
    "int8": pa.array([1, -1, None], pa.int8()),
    "int64": [2, -(2**63), None],
    "uint64": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "float16": pa.array(np.array([1.5, -2, 0], np.float16)),
    "float64": [1.5, float("nan"), None],
    "decimal": pa.array([Decimal("1.50"), Decimal("-99999999.99"), None], pa.decimal128(10, 2)),
    "string": ["ab", "é(", None],
    "binary": [b"ab", b"\xff\x00", None],
    "date": [dt.date(2024, 3, 31), dt.date(1, 1, 1), None],
    "time": [dt.time(1, 2, 3), dt.time(0), None],
    "timestamp": [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(1, 1, 1), None],
    "zoned": pa.array([0, 10**15, None], pa.int64()).cast(ZONED),
    "duration": [dt.timedelta(days=1), dt.timedelta(microseconds=-1), None],
    "list": [[1, None], [], None],
    "strings": [["a", None], [], None],
    "lists": [[[1]], [[], None], None],
    "structs": [[{"x": 1}], [], None],
    "embedding": pa.ExtensionArray.from_storage(
        ps.DataType.embedding("float32", 2).arrow, pa.array([[1, 2], [0, 0], None], pa.list_(pa.float32(), 2))
    ),
    "struct": [{"x": 1}, {"x": None}, None],
    "map": pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "tensor": [np.zeros((2, 2)), np.ones((2, 2)), None],
    "null": [None, None, None],
}
BATCH = pa.record_batch({name: to_arrow_array(values, None, what=name) for name, values in VALUES.items()})
SCHEMA = Schema.from_arrow(BATCH.schema)
CONSTANTS = [
    1,
    -1,
    10**20,
    "x",
    "",
    None,
    True,
    1.5,
    [1],
    ["x"],
    {"x": 1},
    b"x",
    dt.date(2024, 1, 1),
    object(),
    col("int64"),
    col("string"),
]


def swept() -> Iterator[tuple[str, Callable[[], Expression]]]:
    for name in functions.__all__:
        function = getattr(functions, name)
        has_model = function.__module__ == "penstock.functions.ai" or name.startswith("tokenize")
        if not has_model and name != "uuid":  # which takes no column
            for args, kwargs in calls(function):
                yield f"{name}{args}{kwargs or ''}", lambda f=function, a=args, k=kwargs: f(*a, **k)


def calls(function: Callable[..., Expression]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield every type in every place of the columns, and every constant in the other places, one at a time."""
    parameters = list(inspect.signature(function).parameters.values())
    is_required = [p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters]
    num_others = max(0, sum(is_required) - 1)
    if not parameters or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):  # rank, minhash
        return
    for column in VALUES:
        for other in (1, "x") if num_others else (None,):
            yield (col(column), *[other] * num_others), {}
        if num_others:
            yield (*[col(column)] * num_others, col(column)), {}
    for constant, column in itertools.product(CONSTANTS, ("string", "list") if num_others else ()):
        yield (col(column), *[constant] * num_others), {}
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            for constant, column in itertools.product(CONSTANTS, ("string", "list", "timestamp")):
                yield (col(column), *["x"] * num_others), {parameter.name: constant}


def test_every_function_with_every_type() -> None:
    raw: dict[tuple[str, str], str] = {}
    num_results = 0
    for text, build in swept():
        try:
            node = build()._node
            if not has_udf(node):
                Program([node], SCHEMA).run(BATCH)
            num_results += 1
        except PenstockError:
            continue
        except Exception as exc:
            raw.setdefault((text.partition("(")[0], type(exc).__name__), f"{text}: {exc!r}")
    assert not raw, "\n" + "\n".join(raw.values())
    assert num_results > 1000


def test_arguments_of_functions_of_lists_may_be_expressions() -> None:
    df = ps.from_pydict({"l": [[1, 2, 3], [4, 5]], "i": [1, -1], "n": [2, None]})
    found = df.select(a=col("l")[col("i") :], b=functions.list_slice(col("l"), 0, col("n")), c=col("l")[0:-1])
    assert found.to_pydict() == {"a": [[2, 3], [5]], "b": [[1, 2], None], "c": [[1, 2], [4]]}


def test_an_option_cannot_be_an_expression() -> None:
    with pytest.raises(InvalidArgumentError, match=r"list_sort: desc is the same for all rows.* col\(i\)"):
        col("l").list_sort(desc=col("i"))
    with pytest.raises(
        InvalidArgumentError, match=r"minhash\(col\(t\), num_hashes='a', .* has an argument that does not fit"
    ):
        functions.minhash(col("t"), num_hashes="a", ngram_size=1)


def test_the_empty_text() -> None:
    """Arrow hangs, or crashes, for these."""
    df = ps.from_pydict({"t": ["aé", ""], "e": ["", ""]})
    assert df.select(functions.replace(col("t"), "", "-")).to_pydict() == {"t": ["-a-é-", "-"]}
    with pytest.raises(ComputeError, match="split_on is empty"):
        df.select(functions.split(col("t"), col("e"))).collect()
    with pytest.raises(InvalidArgumentError, match="is not a format"):
        functions.to_date(col("t"), "")
