"""Columns to labels: by a model that picks one, or by one that is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.ai.provider import Classifier, loaded
from penstock.types import DataType, Series, to_arrow_array


class BatchLabels:
    """Labels by a classifier that is given a batch at a time."""

    def __init__(self, model: Classifier) -> None:
        self._model = loaded(model)

    def classify(self, column: Series) -> pa.Array:
        values = column.to_pylist()
        rows = [row for row, value in enumerate(values) if value is not None]
        labels: list[str | None] = [None] * len(values)
        if rows:
            for row, label in zip(rows, self._model.classify([values[row] for row in rows]), strict=True):
                labels[row] = label
        return to_arrow_array(labels, DataType.string(), what="label")

    def close(self) -> Any:
        return self._model.close()


def instructions(labels: Sequence[str], what: str) -> str:
    """Return what a model is told that answers prompts and is to pick a label.

    >>> instructions(["cat", "dog"], "image")
    'Classify the image. Answer with the one label that fits best: "cat", "dog".'
    """
    quoted = ", ".join(f'"{label}"' for label in labels)
    return f"Classify the {what}. Answer with the one label that fits best: {quoted}."
