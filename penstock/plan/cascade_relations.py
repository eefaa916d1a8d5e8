"""The relations of ``ask`` with a cheap judge, as frozen data, and the columns between them."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import InvalidArgumentError
from penstock.types import DataType, Field, Schema
from penstock.types.frozen import frozen

# Columns that users do not see.
NUMBER = "__udf_number"
PROBE = "__udf_probe"  # -1 for a row, 0 for a copy in the pilot, from 1 on for the rank of a candidate
LABEL, SCORE, VECTOR = "__udf_label", "__udf_score", "__udf_vector"
IS_KNOWN, IS_SCORED = "__udf_known", "__udf_scored"
LOW, HIGH = "__udf_low", "__udf_high"
ARGUMENT = "__udf_argument"  # and a number
IS_ASKED, ANSWER = "__udf_asked", "__udf_answer"


@frozen
class Promise:
    """The least precision among the accepted rows, the least recall among the rows that the model would accept, and the
    confidence in both.
    """

    precision: float
    recall: float
    confidence: float

    def check(self) -> None:
        for name in ("precision", "recall", "confidence"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise InvalidArgumentError(f"ask: {name} is a share between 0 and 1; got {value!r}.")
        if self.confidence == 1:
            raise InvalidArgumentError("ask: a sample gives no certainty; confidence is below 1, such as 0.95.")

    @property
    def error(self) -> float:
        """The probability that one of the two may be missed."""
        return (1 - self.confidence) / 2


@frozen
class DrawSample:
    """All rows with their numbers, after copies of random rows. In copies only ``columns`` have values."""

    columns: tuple[str, ...]
    needs_order: ClassVar[bool] = True  # so that a resumed job draws the same rows

    def schema(self, *inputs: Schema) -> Schema:
        return Schema([*inputs[0], Field(NUMBER, DataType.int64()), Field(PROBE, DataType.int64())])

    def __str__(self) -> str:
        return "ask: draw a sample"


@frozen
class SizeSample:
    """The rows without the candidates that the calibration does not need."""

    promise: Promise
    needs_order: ClassVar[bool] = True

    def schema(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def __str__(self) -> str:
        return "ask: size the sample"


@frozen
class Calibrate:
    """The rows without the copies, each with its label if it was sampled, and with the thresholds."""

    title: str
    promise: Promise
    has_vector: bool
    needs_order: ClassVar[bool] = True

    def schema(self, *inputs: Schema) -> Schema:
        kept = [field for field in inputs[0] if field.name not in (NUMBER, PROBE, LABEL, SCORE, VECTOR)]
        flag, number = DataType.bool(), DataType.float64()
        dtypes = {LABEL: flag, SCORE: number, IS_KNOWN: flag, IS_SCORED: flag, LOW: number, HIGH: number}
        return Schema([*kept, *(Field(name, dtype) for name, dtype in dtypes.items())])

    def __str__(self) -> str:
        return "ask: find thresholds"


@frozen
class Route:
    """The rows with the answers of the samples and of the judge, or the flag that the model is asked.

    ``billed_as`` names the model in the account of the query.
    """

    title: str
    billed_as: tuple[str, str] | None
    needs_order: ClassVar[bool] = True  # the result keeps the order of the input

    def schema(self, *inputs: Schema) -> Schema:
        kept = [field for field in inputs[0] if field.name not in (LABEL, SCORE, IS_KNOWN, IS_SCORED, LOW, HIGH)]
        return Schema([*kept, Field(IS_ASKED, DataType.bool()), Field(ANSWER, DataType.bool())])

    def __str__(self) -> str:
        return "ask: route rows"


CascadeRelation = DrawSample | SizeSample | Calibrate | Route
