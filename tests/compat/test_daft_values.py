"""Functions return what Daft returns for the same columns, as ``scripts/record_peers.py`` recorded it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.compat.daft import DataType, functions
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


@pytest.mark.parametrize("text", samples.TYPES)
def test_types_are_of_the_kinds_of_daft(text: str) -> None:
    """Ours hold for types of a fixed size too."""
    theirs = set(json.loads((RECORDED / "types.json").read_text())[text])
    wider = {"binary", "image", "list", "numeric", "struct", "temporal", "tensor"}
    assert theirs <= set(samples.kinds(eval(text, {"D": DataType}))) <= theirs | wider
