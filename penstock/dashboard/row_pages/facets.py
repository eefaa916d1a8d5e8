"""Facets of rows: the columns, and the fields of struct columns under names such as ``answer.cost``.

Rows are filtered and sorted by them: numbers and texts by value, lists by length.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, lit
from penstock.functions.core import arrow_function

MAX_FACETS = 200
MAX_DEPTH = 3
MAX_CONDITIONS = 20
MAX_KEY_CHARS = 200  # of a text that rows are sorted by
NUMBER_TEXT = frozenset("0123456789.+-einftrualsn")  # the characters of numbers, "nan", "true" and "false"

Path = tuple[str, ...]
Operator = Literal["is", "is not", "has", "over", "under", "null", "filled"]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on a facet. ``over`` and ``under`` compare numbers, and the lengths of texts and lists."""

    facet: str
    operator: Operator
    value: str

    @staticmethod
    def all_of(text: str) -> tuple[RowFilter, ...]:
        """Read conditions from JSON: ``[["stars", "over", "3"]]``."""
        found = tuple(RowFilter(str(facet), operator, str(value)) for facet, operator, value in orjson.loads(text))
        if len(found) > MAX_CONDITIONS or any(each.operator not in get_args(Operator) for each in found):
            raise InvalidArgumentError(f"at most {MAX_CONDITIONS} conditions, each one of {get_args(Operator)}")
        return found


def facets_of(schema: pa.Schema) -> dict[str, Path]:
    """Return the facets by name.

    >>> list(facets_of(pa.schema({"id": pa.int64(), "answer": pa.struct({"cost": pa.float64()})})))
    ['id', 'answer', 'answer.cost']
    """
    found: dict[str, Path] = {name: (name,) for name in schema.names}

    def add(kind: pa.DataType, path: Path) -> None:
        for field in kind if pa.types.is_struct(kind) and len(path) <= MAX_DEPTH else ():
            found.setdefault(".".join((*path, field.name)), (*path, field.name))
            add(field.type, (*path, field.name))

    for field in schema:
        add(field.type, (field.name,))
    return dict(list(found.items())[:MAX_FACETS])


@dataclass(frozen=True, slots=True)
class Facet:
    """A facet of some rows: its expression and its type."""

    value: Expression
    kind: pa.DataType

    @staticmethod
    def of(schema: pa.Schema, name: str) -> Facet:
        if (path := facets_of(schema).get(name)) is None:
            raise InvalidArgumentError(f"The rows have no {name!r}.")
        found = Facet(col(path[0]), schema.field(path[0]).type)
        for part in path[1:]:
            found = found.part(part)
        return found

    def part(self, name: str) -> Facet:
        return Facet(self.value.struct_get(name), self.kind.field(name).type)

    @property
    def size(self) -> Expression:
        """Numbers, or the lengths of texts and lists, as floats; null for anything else."""
        if is_number(self.kind):
            return self.value.cast("float64")
        if is_text(self.kind):
            return self.value.length().cast("float64")
        return self.value.list_length().cast("float64") if is_list(self.kind) else lit(None).cast("float64")

    @property
    def sort_key(self) -> Expression:
        """The key that rows are sorted by: numbers, texts in lower case, times, and the lengths of lists."""
        if is_text(self.kind):
            return self.value.substr(0, MAX_KEY_CHARS).lower()
        return self.value if pa.types.is_temporal(self.kind) else self.size

    def meets(self, condition: RowFilter) -> Expression:
        """Return which rows meet a condition. Null meets ``null`` and ``is not`` alone."""
        given = condition.value
        match condition.operator:
            case "null":
                return self.value.is_null()
            case "filled":
                return self.value.not_null()
            case "is":
                return self._equals(given)
            case "is not":
                return ~self._equals(given).fill_null(False)
            case "has":
                return self.contains(given)
            case "over":
                return self.size > _number(given)
            case "under":
                return self.size < _number(given)

    def _equals(self, text: str) -> Expression:
        if is_number(self.kind) and not pa.types.is_boolean(self.kind):
            try:
                return self.size == float(text)
            except ValueError:
                return lit(False)
        is_shown = is_text(self.kind) or pa.types.is_boolean(self.kind) or pa.types.is_temporal(self.kind)
        return arrow_function("cast", self.value, pa.large_string()) == text if is_shown else lit(False)

    def contains(self, text: str) -> Expression:
        """Return which rows have a text, in any case, in the texts or numbers of this facet.

        A search looks neither into images nor at the numbers of embeddings.
        """
        if pa.types.is_struct(self.kind):
            parts = [self.part(field.name).contains(text) for field in self.kind]
            return functools.reduce(operator.or_, parts, lit(False))
        texts = None
        if is_text(self.kind):
            texts = self.value
        elif is_number(self.kind) and NUMBER_TEXT.issuperset(text.lower()):
            texts = self.value.cast("string")
        elif is_list(self.kind) and not is_number(self.kind.value_type):
            texts = self.value.serialize("json")
        return lit(False) if texts is None else arrow_function("match_substring", texts, text, ignore_case=True)


def contains_text(schema: pa.Schema, text: str) -> Expression:
    """Return which rows have a text or number anywhere that contains ``text``, in any case."""
    found = [Facet(col(field.name), field.type).contains(text).fill_null(False) for field in schema]
    return functools.reduce(operator.or_, found, lit(False))


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        raise InvalidArgumentError(f"{text!r} is not a number.") from None


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def shape_of(
    name: str, column: pa.ChunkedArray, sizes: pa.ChunkedArray, num_bars: int = 12, max_labels: int = 12
) -> dict[str, object] | None:
    """Return the distribution of a facet as JSON values: counts by label, or a histogram of its sizes.

    None if it has nothing to count: no values, or a different label in each row.

    >>> stars = pa.chunked_array([[5, 1, 5]])
    >>> shape_of("stars", stars, stars)["bars"]
    [['5', 2], ['1', 1]]
    """
    num_null, kind = column.null_count, column.type
    if num_null == len(column):
        return None
    figures = {"facet": name, "num_rows": len(column), "num_null": num_null, "is_label": True}
    if is_text(kind) or is_number(kind):
        counted = pc.value_counts(column.slice(0, 2_000).drop_null())
        if len(counted) <= max_labels and (len(counted) < len(column) or len(column) <= 3):
            counted = pc.value_counts(column.drop_null())
            if len(counted) <= max_labels:
                bars = [[_label(each["values"].as_py()), each["counts"].as_py()] for each in counted]
                return figures | {"bars": sorted(bars, key=lambda bar: -bar[1])}
    numbers = sizes.drop_null()
    if len(numbers) < 2:
        return None
    least, most = pc.min_max(numbers).as_py().values()
    if not (math.isfinite(least) and math.isfinite(most)) or least == most:
        return None
    counts, edges = np.histogram(numbers.to_numpy(), num_bars)
    middle = np.percentile(numbers.to_numpy(), [50, 95])
    bars = [[float(edge), int(count)] for edge, count in zip(edges, counts, strict=False)]
    measured = {"least": least, "most": most, "p50": float(middle[0]), "p95": float(middle[1])}
    return figures | measured | {"is_label": False, "bars": bars, "is_length": not is_number(kind)}


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
