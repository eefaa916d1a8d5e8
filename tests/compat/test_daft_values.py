"""Functions return what Daft returns for the same columns, as ``scripts/record_peers.py`` recorded it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.compat.daft import functions
from tests.compat import samples

RECORDED = Path(__file__).parent / "recorded"
NAMES = {"F": functions, "col": ps.col, "lit": ps.lit}
SIGNED = {"uint32": "int32", "uint64": "int64"}  # counts and parts of dates are signed here: they can be subtracted


@pytest.mark.parametrize("group", samples.EXPRESSIONS)
def test_values_and_types_are_those_of_daft(group: str) -> None:
    expected = json.loads((RECORDED / f"{group}.json").read_text())
    assert list(expected) == samples.EXPRESSIONS[group], "run scripts/record_peers.py"
    exprs = [eval(text, NAMES).alias(text) for text in expected]
    table = ps.from_arrow(samples.table(group)).select(*exprs).to_arrow()
    found = {text: samples.recorded(table.select([text])) for text in expected}
    for text, theirs in expected.items():
        if found[text]["type"] == SIGNED.get(theirs["type"]):
            theirs["type"] = found[text]["type"]
    assert found == expected


def test_texts_in_ascii_are_compared_as_other_texts_are() -> None:
    """ASCII has a way of its own; one letter with an accent in another row takes the general one."""
    table = samples.table("text").to_pydict()
    pairs = [(a, b) for a, b in zip(table["a"], table["b"], strict=True) if a is None or a.isascii()] + [
        ("", ""),
        ("a", None),
    ]
    names = ("levenshtein_distance", "jaro_similarity", "jaro_winkler_similarity")
    exprs = [getattr(functions, name)(ps.col("a"), ps.col("b")).alias(name) for name in names]
    plain, general = (
        ps.from_pydict({"a": [a for a, _ in rows], "b": [b for _, b in rows]}).select(*exprs).to_pydict()
        for rows in (pairs, [*pairs, ("é", "e")])
    )
    assert plain == {name: pytest.approx(values[:-1]) for name, values in general.items()}
