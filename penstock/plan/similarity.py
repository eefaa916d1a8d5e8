"""Relations on similar rows, as frozen data: nearest rows, and rows without near duplicates."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.errors import TypeMismatchError
from penstock.expr.kinds import FLOAT64, UINT64, VECTOR, vector_size
from penstock.types import DataType, Field, Schema
from penstock.types.frozen import frozen

Metric = Literal["cosine", "dot", "euclidean"]


@frozen
class Nearest:
    """The ``k`` nearest rows of the first input for each row of the second, the queries; nearest first.

    ``columns`` lists the output: the input, the column there, its name. The measure and the rank follow.
    """

    on: str
    query_on: str
    k: int
    metric: Metric
    columns: tuple[tuple[int, str, str], ...]
    needs_order: ClassVar[bool] = True  # rows with equal distances come in the order of the input

    @property
    def measure(self) -> str:
        """The name of the column with the distance, or with the dot product, which is large for near rows."""
        return "score" if self.metric == "dot" else "distance"

    def schema(self, *inputs: Schema) -> Schema:
        vectors, queries = inputs[0][self.on].dtype, inputs[1][self.query_on].dtype
        check_vectors("nearest", self.on, vectors)
        check_vectors("nearest: the queries", self.query_on, queries)
        sizes = vector_size(vectors), vector_size(queries)
        if None not in sizes and sizes[0] != sizes[1]:
            raise TypeMismatchError(
                f"nearest: the vectors of {self.on!r} have {sizes[0]} numbers, but the vectors of the queries "
                f"in {self.query_on!r} have {sizes[1]}; both must come from the same model"
            )
        fields = [Field(name, inputs[side][column].dtype) for side, column, name in self.columns]
        return Schema([*fields, Field(self.measure, FLOAT64), Field("rank", UINT64)])

    def __str__(self) -> str:
        return f"nearest {self.k} by {self.metric} of {self.on}"


@frozen
class DropNear:
    """The rows whose vectors are not near an earlier row of the output, by cosine similarity."""

    on: str
    threshold: float
    needs_order: ClassVar[bool] = True

    def schema(self, *inputs: Schema) -> Schema:
        check_vectors("dedup_near", self.on, inputs[0][self.on].dtype)
        return inputs[0]

    def __str__(self) -> str:
        return f"drop near duplicates of {self.on}; threshold {self.threshold:g}"


@frozen
class DropSimilar:
    """The first row of each group. Similar ``minhash`` signatures link rows to groups."""

    signature: str
    threshold: float
    needs_order: ClassVar[bool] = True

    def schema(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def __str__(self) -> str:
        return f"drop similar rows; threshold {self.threshold:g}"


def check_vectors(verb: str, column: str, dtype: DataType) -> None:
    """Raise an error that names the verb and the column unless the column holds vectors."""
    try:
        VECTOR.check(dtype)
    except TypeMismatchError as exc:
        raise TypeMismatchError(f"{verb}: column {column!r}: {exc}") from None
