"""``help`` of the decorators. ``user_code.py`` is for type checkers."""

from __future__ import annotations

import pydoc
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.udf.options import BATCH_OPTIONS, CALL_OPTIONS


@pytest.mark.parametrize(
    ("decorator", "options"),
    [
        (ps.func, ["return_dtype", "unnest", *CALL_OPTIONS]),
        (ps.func.batch, ["return_dtype", "unnest", "batch_size", *BATCH_OPTIONS, *CALL_OPTIONS]),
        (ps.cls, CALL_OPTIONS),
    ],
)
def test_help_explains_every_option(decorator: Callable[..., Any], options: list[str]) -> None:
    text = pydoc.plain(pydoc.render_doc(decorator))
    for option in options:
        assert f"  {option}: " in text.partition("Options:")[2]
