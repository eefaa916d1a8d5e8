"""Labels for columns, by a classifier or by a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.ai.cached_model import CachedModel
from penstock.ai.provider import Classifier
from penstock.cache.memo import Codec
from penstock.errors import InvalidAnswerError
from penstock.types import DataType, PartialColumn, Series, to_arrow_array


class BatchLabels:
    """Labels by a classifier that takes batches."""

    def __init__(self, model: Classifier, known: Sequence[str]) -> None:
        self._model = CachedModel(model, Codec(self._encode, bytes.decode))
        self._known = frozenset(known)

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

    def close(self) -> Any:
        return self._model.close()


def instructions(labels: Sequence[str], what: str) -> str:
    """Return the system message that asks a model to pick a label.

    >>> instructions(["cat", "dog"], "image")
    'Classify the image. Answer with the one label that fits best: "cat", "dog".'
    """
    quoted = ", ".join(f'"{label}"' for label in labels)
    return f"Classify the {what}. Answer with the one label that fits best: {quoted}."
