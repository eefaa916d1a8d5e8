"""Samples are instances of their schema."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from penstock.testing.answer_text import sample


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    """A tree."""

    name: Annotated[str, Field(min_length=3, max_length=8)]
    colour: Colour
    parts: list[Part] = []
    next: Part | None = None


class Everything(BaseModel):
    """One field of each kind."""

    label: Literal["a", "b", "c"]
    score: Annotated[float, Field(ge=0, le=1)]
    above: Annotated[float, Field(gt=0, lt=1)]
    stars: Annotated[int, Field(ge=1, le=5)]
    below: Annotated[int, Field(lt=-5)]
    day: date
    is_new: bool
    pair: tuple[int, str]
    tags: Annotated[list[str], Field(min_length=2, max_length=3)]
    either: int | str | None
    tree: Part
    nothing: None


def test_samples_are_valid() -> None:
    schema = Everything.model_json_schema()
    for number in range(30):
        value = sample(schema, f"prompt {number}")
        Everything.model_validate(value)
        assert sample(schema, f"prompt {number}") == value


def test_seeds_give_different_samples() -> None:
    labels = {sample(Everything.model_json_schema(), str(number))["label"] for number in range(30)}
    assert labels == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": 3}, 3),
        ({"type": "object", "properties": {}}, {}),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}, {"a": 1, "b": 2}),
        ({"type": "ARRAY", "items": {"type": "NULL"}, "minItems": 2, "maxItems": 2}, [None, None]),
        ({"type": "string", "format": "uuid"}, "123e4567-e89b-42d3-a456-426614174000"),
    ],
)
def test_plain_schemas(schema: dict[str, Any], expected: Any) -> None:
    assert sample(schema, "x") == expected


def test_a_schema_that_refers_to_itself_alone() -> None:
    with pytest.raises(RecursionError):
        sample({"$ref": "#"}, "x")
