"""Ways to take rows out of a query."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import penstock as ps
from penstock import col
from penstock.errors import UdfError
from tests.explained import explained


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, None], "s": ["x", None, "z"]})


class Runs:
    """A function that counts how often the query it is part of runs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return batch


# --- in memory ---


def threads_left() -> list[str]:
    """Return the threads that a query started; that of stores stays for the next."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("penstock") and name != "penstock-storage"]


@pytest.mark.one_machine
def test_collect_runs_once_and_is_read_from_memory_then() -> None:
    runs = Runs()
    collected = ps.range(3).map_batches(runs).collect()
    assert runs.count == 1
    assert collected.to_pydict() == collected.to_pydict() == {"id": [0, 1, 2]}
    assert collected.columns == ["id"]
    assert collected.materialize().where(col("id") > 1).count_rows() == 1
    assert runs.count == 1


@pytest.mark.one_machine
def test_without_collect_each_taking_runs_the_query_anew() -> None:
    runs = Runs()
    df = ps.range(3).map_batches(runs)
    df.to_pydict()
    df.count_rows()
    assert runs.count == 2


def test_the_kinds_of_results_agree(df: ps.DataFrame) -> None:
    assert df.to_pydict() == {"a": [1, 2, None], "s": ["x", None, "z"]}
    assert df.to_pylist() == df.take_all() == list(df.iter_rows()) == list(df) == df.to_arrow().to_pylist()
    assert df.to_arrow().schema.equals(pa.schema([("a", pa.int64()), ("s", pa.string())]))
    assert df.to_pandas()["s"].isna().tolist() == [False, True, False]


def test_take_gives_the_first_rows(df: ps.DataFrame) -> None:
    assert df.take(1) == [{"a": 1, "s": "x"}]
    assert df.take(0) == []
    assert len(ps.range(100).take()) == 20


def test_no_rows_keep_their_columns_and_types(df: ps.DataFrame) -> None:
    empty = df.where(col("a") > 99)
    assert empty.to_pydict() == {"a": [], "s": []}
    assert empty.to_arrow().schema.equals(df.to_arrow().schema)
    assert empty.collect().schema == df.schema
    assert empty.to_pandas().columns.tolist() == ["a", "s"]
    assert list(empty.iter_batches()) == []
    assert empty.take_batch(5)["a"].shape == (0,)


def test_count_rows_computes_no_column() -> None:
    @ps.func
    def fail(x: int) -> int:
        raise AssertionError("it ran")

    assert ps.range(10).with_column("y", fail(col("id"))).count_rows() == 10


def test_len_is_for_rows_in_memory(df: ps.DataFrame) -> None:
    assert len(df) == 3
    assert len(df.where(col("a") > 1).collect()) == 1
    with pytest.raises(TypeError, match="not known before the query runs; use count_rows"):
        len(df.where(col("a") > 1))


@pytest.mark.one_machine
def test_list_of_a_query_runs_it_once() -> None:
    runs = Runs()
    assert list(ps.range(2).map_batches(runs)) == [{"id": 0}, {"id": 1}]
    assert runs.count == 1


def test_a_dataframe_has_no_truth_value(df: ps.DataFrame) -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(df)


# --- pandas ---


def test_to_pandas_keeps_types_and_gives_tensors_as_arrays() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    marker = object
    df = ps.from_pydict({"n": [1, 2], "image": list(images), "kind": [marker, marker], "boxes": [[images[0]], []]})
    frame = df.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["n"].dtype == np.int64
    np.testing.assert_array_equal(frame["image"][1], images[1])
    assert frame["kind"][0] is object
    np.testing.assert_array_equal(frame["boxes"][0][0], images[0])
    assert len(frame["boxes"][1]) == 0


# --- iterating ---


def test_iter_rows_stops_the_query_when_it_is_left() -> None:
    seen: list[int] = []
    rows = ps.range(100_000).into_batches(10).map(lambda row: seen.append(row["id"]) or row, concurrency=1).iter_rows()
    assert next(rows) == {"id": 0}
    rows.close()  # type: ignore[attr-defined]
    assert len(seen) < 50_000
    assert not threads_left()


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_iter_batches_sizes(prefetch: int, drop_last: bool, sizes: list[int]) -> None:
    batches = list(ps.range(10).iter_batches(batch_size=4, prefetch=prefetch, drop_last=drop_last))
    assert [len(batch["id"]) for batch in batches] == sizes
    assert np.concatenate([batch["id"] for batch in batches]).tolist() == list(range(sum(sizes)))


def test_iter_batches_without_a_size_gives_them_as_they_are_made() -> None:
    made = ps.range(10).into_batches(3)
    assert [len(b["id"]) for b in made.iter_batches(batch_size=None)] == [3, 3, 3, 1]
    assert [len(b["id"]) for b in made.iter_batches(batch_size=None, drop_last=True)] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("batch_format", "kind"),
    [("numpy", dict), ("pandas", pd.DataFrame), ("pyarrow", pa.Table), ("pylist", list), ("torch", dict)],
)
def test_iter_batches_and_take_batch_formats(batch_format: Any, kind: type) -> None:
    (batch,) = ps.range(2).iter_batches(batch_format=batch_format)
    assert isinstance(batch, kind)
    assert isinstance(ps.range(2).take_batch(1, batch_format), kind)


@pytest.mark.one_machine
def test_prefetch_runs_ahead_by_that_many_batches_and_no_more() -> None:
    made = 0
    changed = threading.Condition()

    def source(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        nonlocal made
        for number in range(1000):
            with changed:
                made += 1
                changed.notify_all()
            yield {"x": [number]}

    batches = ps.range(1).map_batches(source).iter_batches(batch_size=1, prefetch=3)
    assert next(batches)["x"].tolist() == [0]
    with changed:
        assert changed.wait_for(lambda: made >= 4, timeout=60), "nothing was made ahead"
    assert [next(batches)["x"].item() for _ in range(3)] == [1, 2, 3]
    batches.close()  # type: ignore[attr-defined]
    assert made < 1000
    assert not threads_left()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_reaches_the_reader_and_ends_the_iteration(prefetch: int) -> None:
    def fail_at_four(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] >= 4:
            raise ValueError("four")
        return batch

    batches = ps.range(8).map_batches(fail_at_four, batch_size=2).iter_batches(2, prefetch=prefetch)
    with pytest.raises(UdfError, match="ValueError: four"):
        list(batches)
    assert list(batches) == []


@pytest.mark.parametrize("prefetch", [0, 1])
def test_iter_batches_has_the_settings_of_its_reader(prefetch: int) -> None:
    met: list[int] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        met.append(threading.get_ident())
        return batch

    with ps.config(num_threads=1):
        list(ps.range(200).map_batches(look, batch_size=1).iter_batches(batch_size=1, prefetch=prefetch))
        stages = ps.get_config().thread_count
    assert stages == 1
    assert len(set(met)) <= 2


def test_iter_partitions_gives_record_batches() -> None:
    parts = list(ps.range(5).into_batches(3).iter_partitions())
    assert [type(part) for part in parts] == [pa.RecordBatch, pa.RecordBatch]


# --- torch ---


def test_iter_torch_batches() -> None:
    df = ps.from_numpy(np.ones((5, 2), dtype=np.float32))
    batches = list(df.iter_torch_batches(batch_size=2, drop_last=True))
    assert [batch["data"].shape for batch in batches] == [torch.Size([2, 2])] * 2
    assert batches[0]["data"].dtype == torch.float32


@pytest.mark.one_machine  # on Ray, the processes of a loader may not be forked
@pytest.mark.parametrize("num_workers", [0, 2])
def test_to_torch_iterable_gives_each_row_once_to_a_data_loader(num_workers: int) -> None:
    dataset = ps.range(7).to_torch_iterable()
    loader = DataLoader(dataset, batch_size=2, num_workers=num_workers)
    assert sorted(n for batch in loader for n in batch["id"].tolist()) == list(range(7))
    assert sorted(n for batch in loader for n in batch["id"].tolist()) == list(range(7)), "a second epoch"


def test_to_torch_map_has_length_and_index() -> None:
    dataset = ps.from_pydict({"x": [np.ones(2), np.zeros(2)], "y": [1, 2]}).to_torch_map()
    assert len(dataset) == 2  # type: ignore[arg-type]
    assert dataset[1]["y"] == 2
    assert dataset[-1]["y"] == 2
    with pytest.raises(IndexError):
        dataset[2]
    (batch,) = DataLoader(dataset, batch_size=2)
    torch.testing.assert_close(batch["x"], torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64))


# --- looking ---


def test_show_prints_the_first_rows_and_runs_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs()
    df = (
        ps.range(100)
        .map_batches(runs, batch_size=1, concurrency=1)
        .with_column("t", ps.lit("row ") + col("id").cast("string"))
    )
    df.show(2)
    shown = capsys.readouterr().out
    assert "id" in shown
    assert "int64" in shown
    assert "row 1" in shown
    assert "row 2" not in shown
    assert runs.count < 50
    df.show(limit=1)
    assert "row 1" not in capsys.readouterr().out


def test_explain_shows_the_plan_its_optimized_form_and_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs()
    df = ps.range(10).where(col("id") > 2).map_batches(runs, batch_size=3).limit(2)
    text = explained(df)
    assert capsys.readouterr().out == ""
    shown: object = df.explain()  # type: ignore[func-returns-value]
    assert (shown, capsys.readouterr().out) == (None, text)
    headings = [line for line in text.splitlines() if line.startswith("== ")]
    assert headings == ["== Plan ==", "== Optimized ==", "== Stages =="]
    assert "MapBatches Runs" in text
    assert runs.count == 0


@pytest.mark.one_machine
def test_explain_analyze_runs_the_query_and_says_what_stages_took() -> None:
    runs = Runs()
    text = explained(ps.range(10).map_batches(runs, batch_size=None), analyze=True)
    assert "== Run ==" in text
    assert "map_batches Runs" in text.partition("== Run ==")[2]
    assert runs.count == 1


@pytest.mark.parametrize(
    ("error", "ending"), [(ValueError, "failed (UdfError)"), (KeyboardInterrupt, "stopped (Keybo")]
)
def test_explain_analyze_of_a_query_that_fails(error: type[BaseException], ending: str) -> None:
    def fail(batch: object) -> object:
        raise error

    text = io.StringIO()
    with pytest.raises(error):
        ps.range(10).map_batches(fail).explain(analyze=True, file=text)
    assert f"\n{ending}" in text.getvalue()


def test_repr_of_what_is_in_memory_shows_rows_and_of_a_query_its_columns(df: ps.DataFrame) -> None:
    assert "not run yet" in repr(df.where(col("a") > 1))
    collected = df.collect()
    assert "x" in repr(collected)
    assert "<table" in collected._repr_html_()
    for text in (repr(ps.range(1000).collect()), ps.range(1000).collect()._repr_html_()):
        assert "(showing first 8 of 1,000 rows)" in text
    assert "not run yet" in df.where(col("a") > 1)._repr_html_()
