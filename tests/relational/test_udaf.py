"""``udaf``: aggregates in Python beside the built-in ones."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError

DF = {"k": ["x", "x", "y"], "v": [1, 5, 2], "w": [1.0, None, 2.0]}


@ps.udaf
def spread(values: ps.Series) -> int:
    return max(values) - min(values)


@ps.udaf(return_dtype=ps.DataType.float64(), state={"sum": ps.DataType.float64(), "count": ps.DataType.int64()})
class WeightedMean:
    """Written as Daft wants it."""

    def __init__(self, missing: float = 0.0) -> None:
        self.missing = missing

    def aggregate(self, values: ps.Series, weights: ps.Series) -> dict[str, Any]:
        used = [self.missing if weight is None else weight for weight in weights]
        return {"sum": sum(v * w for v, w in zip(values, used, strict=True)), "count": sum(used)}

    def combine(self, states: dict[str, Any]) -> dict[str, Any]:
        return {name: sum(values) for name, values in states.items()}

    def finalize(self, state: dict[str, Any]) -> float:
        return float(state["sum"] / state["count"])


def test_functions_and_classes_beside_built_in_aggregates() -> None:
    df = ps.from_pydict(DF)
    mean = WeightedMean(missing=3.0)
    got = df.groupby("k").agg(
        spread(ps.col("v") * 10) + 1, mean(ps.col("v"), ps.col("w")).alias("mean"), ps.col("v").sum().alias("sum")
    )
    assert got.sort("k").to_pydict() == {"k": ["x", "y"], "v": [41, 1], "mean": [4.0, 2.0], "sum": [6, 2]}
    assert df.agg(spread(ps.col("v"))).to_pydict() == {"v": [4]}


def test_a_failed_group_is_null_if_errors_are_tolerated() -> None:
    inverse = ps.udaf(lambda values: 1 / (len(values) - 1), return_dtype="float64", on_error="ignore")
    got = ps.from_pydict(DF).groupby("k").agg(inverse(ps.col("v"))).sort("k").to_pydict()
    assert got == {"k": ["x", "y"], "v": [1.0, None]}


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: ps.udaf(lambda values: 1), "the type of its results is not known; annotate it"),
        (lambda: ps.udaf(int), "class 'int' needs a method aggregate"),
        (lambda: ps.udaf(3, return_dtype="int64"), "udaf decorates a function or a class; got 3"),
        (lambda: ps.udaf(spread, batch_size=3), "udaf has no option 'batch_size'"),
        (lambda: spread("v"), "spread takes columns, such as"),
        (lambda: WeightedMean()(ps.col("v")), "missing a required argument: 'weights'"),
        (lambda: ps.from_pydict(DF).with_column("s", spread(ps.col("v"))), "combines rows; use it in agg"),
    ],
)
def test_mistakes(use: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        use()
