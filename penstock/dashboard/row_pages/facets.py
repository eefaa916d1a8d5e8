"""Facets of rows: the columns, and the fields of struct columns under names such as ``answer.cost``.

Rows are filtered and sorted by them: numbers and texts by value, lists by length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError

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


def facet_values(batch: pa.RecordBatch, name: str) -> pa.Array:
    if (path := facets_of(batch.schema).get(name)) is None:
        raise InvalidArgumentError(f"The rows have no {name!r}.")
    array = batch.column(path[0])
    for part in path[1:]:
        array = pc.struct_field(array, part)
    return array


def matches(batch: pa.RecordBatch, condition: RowFilter) -> pa.Array:
    """Return for each row whether it meets the condition. Null meets ``null`` and ``is not`` alone."""
    values, given = facet_values(batch, condition.facet), condition.value
    match condition.operator:
        case "null":
            return pc.is_null(values)
        case "filled":
            return pc.is_valid(values)
        case "is" | "is not":
            found = pc.fill_null(_equal(values, given), False)
            return found if condition.operator == "is" else pc.invert(found)
        case "has":
            return pc.fill_null(contains(values, given), False)
        case "over":
            return pc.fill_null(pc.greater(sizes(values), _number(given)), False)
        case "under":
            return pc.fill_null(pc.less(sizes(values), _number(given)), False)


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        raise InvalidArgumentError(f"{text!r} is not a number.") from None


def _equal(values: pa.Array, text: str) -> pa.Array:
    if is_number(values.type) and not pa.types.is_boolean(values.type):
        try:
            return pc.equal(values.cast(pa.float64()), float(text))
        except ValueError:
            return pa.array([False] * len(values))
    return pc.equal(_texts(values), text)


def _texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pa.nulls(len(values), pa.large_string())


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def sizes(values: pa.Array) -> pa.Array:
    """Return numbers, or the lengths of texts and lists, as floats; null for anything else."""
    kind = values.type
    if is_number(kind):
        return values.cast(pa.float64())
    if is_text(kind):
        return pc.utf8_length(values).cast(pa.float64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pc.list_value_length(values).cast(pa.float64())
    return pa.nulls(len(values), pa.float64())


def sort_keys(values: pa.Array) -> pa.Array:
    """Return what rows are sorted by: numbers, texts, times, and the lengths of lists.

    >>> sort_keys(pa.array(["B", "a", None]).slice(1)).to_pylist(), sort_keys(pa.array(["É", "a"])).to_pylist()
    (['a', None], ['é', 'a'])
    """
    if is_text(values.type):
        texts = values.cast(pa.large_string())
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:  # several times as fast
            return pc.ascii_lower(pc.binary_slice(texts.cast(pa.large_binary()), 0, MAX_KEY_CHARS).cast(texts.type))
        return pc.utf8_lower(pc.utf8_slice_codeunits(texts, 0, MAX_KEY_CHARS))
    if pa.types.is_temporal(values.type):
        return _texts(values)
    return sizes(values)


def is_searched(kind: pa.DataType) -> bool:
    """Return whether a search for a text looks into values of a type: not into images or the numbers of embeddings.

    >>> embedding, tags = pa.list_(pa.float32()), pa.list_(pa.string())
    >>> [is_searched(kind) for kind in (pa.int64(), embedding, tags, pa.struct({"tags": tags, "of": embedding}))]
    [True, False, True, True]
    """
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_struct(kind):
        return any(is_searched(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return not is_number(kind.value_type) and is_searched(kind.value_type)
    return is_text(kind) or is_number(kind)


def contains_text(batch: pa.RecordBatch, text: str) -> pa.Array:
    """Return whether a text or number anywhere in a row contains ``text``, in any case.

    >>> batch = pa.RecordBatch.from_pydict({"a": ["Red", None], "b": [{"c": ["x"]}, {"c": ["dark RED"]}]})
    >>> contains_text(batch, "red").to_pylist(), contains_text(batch, "dark").to_pylist()
    ([True, True], [False, True])
    """
    found = pa.array([False] * batch.num_rows)
    for column in batch.columns:
        found = pc.or_(found, pc.fill_null(contains(column, text), False))
    return found


def contains(array: pa.Array, text: str) -> pa.Array:
    kind = array.type
    if not is_searched(kind):
        return pa.nulls(len(array), pa.bool_())
    if pa.types.is_struct(kind):
        found = pa.nulls(len(array), pa.bool_())
        for part in array.flatten():
            found = pc.or_kleene(found, contains(part, text))
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array).filter(pc.fill_null(contains(array.flatten(), text), False))
        return pc.is_in(pa.array(range(len(array)), pa.int64()), pc.cast(parents, pa.int64()))
    if is_text(kind):
        return pc.match_substring(array, text, ignore_case=True)
    if is_number(kind) and NUMBER_TEXT.issuperset(text.lower()):
        return pc.match_substring(pc.cast(array, pa.string()), text, ignore_case=True)
    return pa.nulls(len(array), pa.bool_())


def shape_of(
    name: str, values: Sequence[pa.Array], num_bars: int = 12, max_labels: int = 12
) -> dict[str, object] | None:
    """Return the distribution of a facet as JSON values: counts by label, or a histogram of numbers or lengths.

    None if it has nothing to count: no values, or a different label in each row.

    >>> shape_of("stars", [pa.array([5, 1, 5])])["bars"]
    [['5', 2], ['1', 1]]
    """
    column = pa.chunked_array(values)
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
    numbers = pa.chunked_array([sizes(chunk) for chunk in column.chunks]).drop_null()
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
