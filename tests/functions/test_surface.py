"""The functions that ``penstock.functions`` exports."""

from __future__ import annotations

import doctest
import inspect
import re
import sys

import pytest

from penstock import functions
from penstock.errors import MissingExtraError
from penstock.expr.column import col
from tests.expr.evaluating import batch_of, run

NOT_METHODS = {"format", "concat_ws", "coalesce", "when", "greatest", "least", "to_list", "to_struct"} | {
    *("row_number", "rank", "dense_rank", "current_date", "current_timestamp"),
    *(
        "ask",
        "yes_no",
        "choice",
        "score",
        "arrow_function",
        "duckdb_function",
        "monotonically_increasing_id",
        "random_int",
        "uuid",
    ),
}


def test_every_function_has_an_example_and_most_are_methods() -> None:
    for name in functions.__all__:
        function = getattr(functions, name)
        module = function.__module__.removeprefix("penstock.functions.")
        has_example = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
        assert has_example or module == "ai" or name.startswith("tokenize"), f"{name} has no example"
        assert name in NOT_METHODS or hasattr(col("x"), name)


def test_a_search_finds_every_function() -> None:
    for name in functions.__all__:
        source = inspect.getsource(sys.modules[getattr(functions, name).__module__])
        assert re.search(rf"^({name} = |def {name}\()", source, re.MULTILINE), f"{name} has no definition to search for"


def test_doctest_sees_generated_functions() -> None:
    modules = (functions.numeric, functions.calendar)
    finder = doctest.DocTestFinder()
    found = {test.name.rpartition(".")[2] for module in modules for test in finder.find(module) if test.examples}
    assert {"sqrt", "asin", "year", "total_days"} <= found


def test_tokenizers_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[transformers\]"'):
        run(functions.tokenize_encode(col("t"), "missing.json"), batch_of(t=["a"]))
