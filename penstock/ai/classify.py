"""Labels for columns, by a classifier or by a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.ai.cached_model import VECTORS, CachedModel
from penstock.ai.provider import Classifier, ScoringClassifier
from penstock.cache.memo import Codec
from penstock.errors import InvalidAnswerError
from penstock.types import DataType, PartialColumn, Series, to_arrow_array


class BatchLabels:
    """Labels by a classifier that takes batches."""

    def __init__(self, model: Classifier, known: Sequence[str]) -> None:
        self._model = CachedModel(model, Codec(self._encode, bytes.decode))
        self._known = frozenset(known)
        self.close = self._model.close

    def classify(self, column: Series) -> PartialColumn:
        values = column.to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None]
        labels: list[str | None] = [None] * len(values)
        failures: dict[int, Exception] = {}
        for row, label in zip(rows, self._model.results([values[row] for row in rows], self._classify), strict=True):
            if isinstance(label, str) and label in self._known:
                labels[row] = label
            else:
                failures[row] = InvalidAnswerError(
                    f"{self._name}.classify returned {label!r}, which is not among the labels: "
                    f"{', '.join(sorted(self._known))}"
                )
        return PartialColumn(to_arrow_array(labels, DataType.string(), what="label"), failures)

    @property
    def _name(self) -> str:
        return type(self._model.model).__name__

    def _encode(self, label: Any) -> bytes | None:
        return label.encode() if isinstance(label, str) and label in self._known else None

    def _classify(self, values: Sequence[Any]) -> Sequence[Any]:
        found: Any = self._model.loaded().classify(values) if values else ()
        if isinstance(found, str) or not isinstance(found, Sequence | np.ndarray) or len(found) != len(values):
            got = f"{len(found)} labels" if isinstance(found, list | tuple | np.ndarray) else type(found).__name__
            raise InvalidAnswerError(
                f"{self._name}.classify was given {len(values)} inputs and returned {got}; return a "
                "list with the label of each"
            )
        return found.tolist() if isinstance(found, np.ndarray) else found


class BatchScores:
    """The best label and the scores of all labels, by a classifier that takes batches."""

    def __init__(self, model: ScoringClassifier) -> None:
        self._model = CachedModel(model, VECTORS, "scores")
        self._labels = model.labels
        self.close = self._model.close

    def classify(self, column: Series) -> pa.Array:
        values = column.to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None]
        table = np.zeros((len(values), len(self._labels)))
        if rows:
            table[rows] = list(self._model.results([values[row] for row in rows], self._scores))
        best, is_null = table.argmax(1), pa.array([value is None for value in values])
        columns = [pa.array(each) for each in table.T]
        parts = {
            "label": pa.array(np.array(self._labels, object)[best]),
            "score": pa.array(table.max(1)),
            "scores": pa.StructArray.from_arrays(columns, names=self._labels),
        }
        return pa.StructArray.from_arrays(list(parts.values()), names=list(parts), mask=is_null)

    def _scores(self, values: Sequence[Any]) -> Any:
        return self._model.loaded().scores(values)


def scored_label(labels: Sequence[str]) -> DataType:
    """Return the type of a label with its scores.

    >>> scored_label(["cat"])
    struct[label: string, score: float64, scores: struct[cat: float64]]
    """
    scores = DataType.struct(dict.fromkeys(labels, DataType.float64()))
    return DataType.struct({"label": DataType.string(), "score": DataType.float64(), "scores": scores})


def instructions(labels: Sequence[str], what: str) -> str:
    """Return the system message that asks a model to pick a label.

    >>> instructions(["cat", "dog"], "image")
    'Classify the image. Answer with the one label that fits best: "cat", "dog".'
    """
    quoted = ", ".join(f'"{label}"' for label in labels)
    return f"Classify the {what}. Answer with the one label that fits best: {quoted}."
