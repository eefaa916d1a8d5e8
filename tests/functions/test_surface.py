"""The functions that ``penstock.functions`` exports."""

from __future__ import annotations

import doctest
import inspect

import pytest

from penstock import functions
from penstock.errors import MissingExtraError
from penstock.expr.column import Expression, col
from tests.expr.evaluating import batch_of, run

NOT_METHODS = {"format", "concat_ws", "coalesce", "when", "greatest", "least", "to_list", "to_struct"} | {
    *("row_number", "rank", "dense_rank", "current_date", "current_timestamp"),
    *("arrow_function", "duckdb_function", "monotonically_increasing_id", "random_int", "uuid"),
}


def test_every_function_has_an_example_and_most_are_methods() -> None:
    for name in functions.__all__:
        function = getattr(functions, name)
        module = function.__module__.removeprefix("penstock.functions.")
        has_example = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
        assert has_example or module == "ai" or name.startswith("tokenize"), f"{name} has no example"
        assert name in NOT_METHODS or hasattr(Expression, name)


def test_doctest_sees_generated_functions() -> None:
    found = {test.name.rpartition(".")[2] for test in doctest.DocTestFinder().find(functions) if test.examples}
    assert {"sqrt", "asin", "year", "total_days"} <= found


def test_tokenizers_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[transformers\]"'):
        run(functions.tokenize_encode(col("t"), "missing.json"), batch_of(t=["a"]))
