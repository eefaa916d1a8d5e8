"""Columns to labels: by a model that picks one, or by one that is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.ai.kept_results import Codec, KeptModel
from penstock.ai.provider import Classifier
from penstock.errors import InvalidAnswerError
from penstock.types import DataType, PartialColumn, Series, to_arrow_array


class BatchLabels:
    """Labels by a classifier that is given a batch at a time."""

    def __init__(self, model: Classifier, known: Sequence[str]) -> None:
        self._model = KeptModel(model)
        self._known = frozenset(known)

    def classify(self, column: Series) -> PartialColumn:
        values = column.to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None]
        labels: list[str | None] = [None] * len(values)
        failures: dict[int, Exception] = {}
        for row, label in zip(rows, self._labels([values[row] for row in rows]), strict=True):
            if isinstance(label, str) and label in self._known:
                labels[row] = label
            else:
                failures[row] = InvalidAnswerError(
                    f"{self._name}.classify returned {label!r}, which is none of the labels: "
                    f"{', '.join(sorted(self._known))}"
                )
        return PartialColumn(to_arrow_array(labels, DataType.string(), what="label"), failures)

    @property
    def _name(self) -> str:
        return type(self._model.spec).__name__

    def _labels(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the label of each value: the one that is kept, or what the model picks."""
        if self._model.kept is None:
            return self._picked(values)
        return self._model.kept.of_inputs(values, Codec(self._packed, bytes.decode), self._picked)

    def _packed(self, label: Any) -> bytes | None:
        return label.encode() if isinstance(label, str) and label in self._known else None

    def _picked(self, values: Sequence[Any]) -> Sequence[Any]:
        found: Any = self._model.ready().classify(values) if values else ()
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
    """Return what a model is told that answers prompts and is to pick a label.

    >>> instructions(["cat", "dog"], "image")
    'Classify the image. Answer with the one label that fits best: "cat", "dog".'
    """
    quoted = ", ".join(f'"{label}"' for label in labels)
    return f"Classify the {what}. Answer with the one label that fits best: {quoted}."
