"""Frozen classes behave as ``dataclass(frozen=True, slots=True)`` does."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, replace

import pytest

from penstock.types.frozen import frozen


@frozen
class Shape:
    line: str | None = field(default=None, kw_only=True)
    area: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", 0.0)


@frozen
class Square(Shape):
    side: int
    color: str = "red"


def test_positional_fields_are_compared_hashed_and_shown() -> None:
    square = Square(2, line="a.py:1")
    assert square == Square(2, "red", line="b.py:7")
    assert square not in (Square(3), Shape(), (2, "red"))
    assert len({square, Square(2), Square(3)}) == 2
    assert repr(square) == "Square(side=2, color='red')"


def test_a_field_is_neither_assigned_again_nor_deleted() -> None:
    square = Square(2)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'side'"):
        square.side = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'side'"):
        del square.side
    with pytest.raises(AttributeError):
        square.other = 3  # type: ignore[attr-defined]
    assert replace(square, side=3) == Square(3)


def test_copies_and_pickles_have_all_fields() -> None:
    square = Square(2, line="a.py:1")
    for other in (copy.copy(square), pickle.loads(pickle.dumps(square))):
        assert (other.side, other.color, other.line, other.area) == (2, "red", "a.py:1", 0.0)
