"""What functions say they take is what they take."""

from __future__ import annotations

import inspect

import pytest

import penstock.functions as functions
from penstock.ai.provider import (
    ImageClassification,
    ImageEmbedding,
    Prompting,
    Task,
    TextClassification,
    TextEmbedding,
)


@pytest.mark.parametrize("task", [Prompting, TextEmbedding, ImageEmbedding, TextClassification, ImageClassification])
def test_parameters_are_those_of_the_function(task: type[Task]) -> None:
    taken = set(inspect.signature(getattr(functions, task.function)).parameters)
    assert {"provider", "model", "options", *task.parameters} == taken
