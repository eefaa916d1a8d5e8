"""The parameters of tasks are those of the functions."""

from __future__ import annotations

import inspect

import pytest

import penstock.functions as functions
from penstock.ai.provider import (
    ImageClassification,
    ImageEmbedding,
    ModelTask,
    Prompting,
    TextClassification,
    TextEmbedding,
)


@pytest.mark.parametrize("task", [Prompting, TextEmbedding, ImageEmbedding, TextClassification, ImageClassification])
def test_parameters_are_those_of_the_function(task: type[ModelTask]) -> None:
    taken = set(inspect.signature(getattr(functions, task.function)).parameters)
    assert {"provider", "model", "options", *task.parameters} == taken
