"""What ``penstock.functions`` offers."""

from __future__ import annotations

import doctest
import inspect

import pytest

from penstock import functions
from penstock.errors import MissingExtraError
from penstock.expr.column import Expression, col
from tests.expr.evaluating import batch_of, run

NOT_METHODS = {"format", "concat_ws", "coalesce", "when", "greatest", "least", "to_list", "to_struct"}


@pytest.mark.parametrize("name", functions.__all__)
def test_every_function_is_documented_and_most_are_methods(name: str) -> None:
    function = getattr(functions, name)
    assert inspect.getdoc(function)
    if not function.__module__.startswith("penstock.functions."):
        return
    module = function.__module__.removeprefix("penstock.functions.")
    if module not in {
        "calendar",
        "video",
        "pdf",
        "chunks",
        "audio",
        "core",
        "files",
        "hashing",
        "image",
        "json",
        "lists",
        "nested",
        "numeric",
        "patterns",
        "real",
        "temporal",
        "text",
        "url",
        "vector",
    }:
        return
    assert doctest.DocTestParser().get_examples(function.__doc__), f"{name} has no example"
    assert name in NOT_METHODS or hasattr(Expression, name)


def test_tokenizers_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[transformers\]"'):
        run(functions.tokenize_encode(col("t"), "missing.json"), batch_of(t=["a"]))
