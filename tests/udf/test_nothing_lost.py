"""Rows that come out and rows that are recorded are together the rows that went in, however functions fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock.udf import retry
from tests.udf.fates import FORMS, IN_PROCESSES, Fate, Fates, Options, map_rows


@pytest.fixture(autouse=True, scope="module")
def _no_delays() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "FIRST_DELAY_S", 0.001)
        yield


def check(form: Callable[..., ps.DataFrame], fates: list[Fate], batch_size: int, options: Options) -> None:
    df = ps.from_pydict({"a": list(range(len(fates)))}).into_batches(batch_size)
    df = form(df, Fates(fates), options)
    rows = {row["a"]: row["x"] for row in df.to_pylist()} if fates else {}
    good = [a for a, fate in enumerate(fates) if fate in ("fine", "flaky")]
    bad = [a for a, fate in enumerate(fates) if fate not in ("fine", "flaky")]
    assert {a: x for a, x in rows.items() if x is not None} == {a: -a for a in good}
    assert sorted(json.loads(text)["a"] for text in df.errors().to_pydict()["input"]) == bad
    if not form.__name__.startswith(("map", "flat_map", "filter")):
        assert sorted(rows) == list(range(len(fates)))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@settings(max_examples=12, deadline=None)
@given(
    fates=st.lists(st.sampled_from(["fine", "fine", "flaky", "raises", "wrong type", "short"]), max_size=20),
    batch_size=st.integers(1, 9),
    on_error=st.sampled_from(["log", "ignore"]),
)
def test_every_row_is_in_the_output_or_recorded(
    form: Callable[..., ps.DataFrame], fates: list[Fate], batch_size: int, on_error: str
) -> None:
    check(form, fates, batch_size, {"on_error": on_error, "max_retries": 1})


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_without_retries_too(form: Callable[..., ps.DataFrame]) -> None:
    check(form, ["raises", "fine", "wrong type", "fine", "short", "raises"], 4, {"on_error": "ignore"})


@pytest.mark.parametrize("form", IN_PROCESSES, ids=lambda form: form.__name__)
def test_in_processes_that_die_too(form: Callable[..., ps.DataFrame]) -> None:
    check(form, ["fine", "raises", "dies", "wrong type"], 4, {"on_error": "ignore", "use_process": True})


def test_in_processes_with_retries_too() -> None:
    check(map_rows, ["flaky", "dies", "fine"], 3, {"on_error": "log", "max_retries": 1, "use_process": True})
