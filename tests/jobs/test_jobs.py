"""Writes with ``resume=``: what is done is not done again, what changed is refused, what was deleted is made anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DataType, col
from penstock.errors import (
    InvalidArgumentError,
    JobChangedError,
    JobRunningError,
    OutputExistsError,
    PenstockError,
    WriteError,
)
from penstock.jobs.folder import LocalJobFolder
from tests.io.helpers import visible_files
from tests.jobs.helpers import Calls, breaking, column, errors, num_safe, numbers, staged, write_numbers

INT = DataType.int64()


@pytest.fixture(autouse=True)
def _commit_often() -> Iterator[None]:
    with ps.config(checkpoint_interval=0.001, progress=True):
        yield


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """While this file is there, functions made by ``breaking`` fail."""
    path = tmp_path / "broken"
    path.touch()
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def tens(
    frame: ps.DataFrame,
    calls: Calls,
    broken: Path,
    at: int | None = -1,
    rows: tuple[Path, int] | None = None,
    **options: Any,
) -> ps.DataFrame:
    """Return the numbers with ten times each; it fails ``at`` one of them, None: at all."""
    function = ps.func(return_dtype=INT, **options)(breaking(calls, broken, at, rows))
    return frame.with_column("b", function(col("a")))


# --- begin, finish, do nothing ---


def test_a_finished_job_does_nothing_and_says_so(
    out: Path, calls: Calls, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tens(numbers(20), calls, broken).write_parquet(str(out), resume=True, rows_per_file=8).to_pydict()
    assert sum(calls.take().values()) == 20
    assert first["rows"] == [8, 8, 4]
    assert column(out, "b") == [a * 10 for a in range(20)]
    for way in (True, "force", "errors"):
        capsys.readouterr()
        again = tens(numbers(20), calls, broken).write_parquet(str(out), resume=way, rows_per_file=8).to_pydict()
        assert again == first
        assert f"The job in {str(out)!r} is complete: 20 rows in 3 files. Nothing was done." in capsys.readouterr().err
    assert not calls.take()


def test_nothing_is_seen_of_a_job_before_its_end(out: Path, calls: Calls, broken: Path, tmp_path: Path) -> None:
    source = write_numbers(tmp_path / "in", range(50), range(50, 100))
    with pytest.raises(PenstockError, match="no luck with 99") as failure:
        tens(ps.read_parquet(str(source)), calls, broken, at=99).write_parquet(str(out), resume=True)
    assert f"The job in {str(out)!r} keeps what is done" in failure.value.__notes__[-1]
    assert visible_files(out) == []
    assert staged(out)


def test_rows_that_are_written_are_not_computed_again(
    out: Path, calls: Calls, broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_numbers(tmp_path / "in", range(50), range(50, 100))

    def write() -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, at=99, rows=(out, 50))
        frame.write_parquet(str(out), resume=True)

    with pytest.raises(PenstockError, match="no luck with 99"):
        write()
    calls.take()
    capsys.readouterr()
    written = num_safe(out)
    assert written >= 50
    broken.unlink()
    write()
    assert f"Resuming the job in {str(out)!r}: {written} rows of it are written." in capsys.readouterr().err
    again = calls.take()
    assert sum(again.values()) == 100 - written
    assert set(again.values()) == {1}
    assert column(out, "b") == [a * 10 for a in range(100)]


def test_a_job_of_no_rows_has_one_empty_file(out: Path) -> None:
    none = numbers(5).where(col("a") > 9)
    first = none.write_parquet(str(out), resume=True).to_pydict()
    assert first["rows"] == [0]
    assert none.write_parquet(str(out), resume=True).to_pydict() == first
    os.unlink(first["path"][0])
    again = none.write_parquet(str(out), resume=True).to_pydict()
    assert again["rows"] == [0]
    assert [str(out / name) for name in visible_files(out)] == again["path"]
    assert ps.read_parquet(str(out)).to_pydict() == {"a": []}


@pytest.mark.parametrize("partition_cols", [(), ("k",)])
def test_an_empty_file_goes_when_rows_come(out: Path, tmp_path: Path, partition_cols: Sequence[str]) -> None:
    source = write_numbers(tmp_path / "in", [])

    def write(resume: Any) -> None:
        frame = ps.read_parquet(str(source)).with_column("k", col("a") % 2)
        frame.write_parquet(str(out), resume=resume, partition_cols=partition_cols)

    write(True)
    write_numbers(tmp_path / "in", [], [1, 2])
    write("force")
    assert column(out) == [1, 2]
    assert not [name for name in visible_files(out) if "empty" in name]


@pytest.mark.parametrize("source", ["memory", "range", "csv", "json", "text", "generator"])
def test_inputs_of_every_kind(out: Path, tmp_path: Path, calls: Calls, broken: Path, source: str) -> None:
    (tmp_path / "x.csv").write_text("a\n" + "".join(f"{a}\n" for a in range(30)))
    (tmp_path / "x.jsonl").write_text("".join(f'{{"a": {a}}}\n' for a in range(30)))
    (tmp_path / "x.txt").write_text("".join(f"{a}\n" for a in range(30)))

    def frame() -> ps.DataFrame:
        match source:
            case "memory":
                return numbers(30)
            case "range":
                return ps.range(30).select(col("id").alias("a"))
            case "csv":
                return ps.read_csv(str(tmp_path / "x.csv"))
            case "json":
                return ps.read_json(str(tmp_path / "x.jsonl"))
            case "text":
                return ps.read_text(str(tmp_path / "x.txt")).select(col("text").cast(INT).alias("a"))
            case _:
                table = pa.Table.from_batches([pa.record_batch({"a": [a]}) for a in range(30)])
                return ps.from_arrow(table)

    for _ in range(2):
        with pytest.raises(PenstockError, match="no luck"):
            tens(frame(), calls, broken, at=29).write_parquet(str(out), resume=True)
    broken.unlink()
    tens(frame(), calls, broken, at=29).write_parquet(str(out), resume=True)
    assert column(out, "b") == [a * 10 for a in range(30)]


# --- what is written ---


def npy(path: str) -> ps.DataFrame:
    return ps.read_numpy(path).select(col("data").alias("b"))


Write = Callable[[ps.DataFrame, str, Any], Any]
FORMATS: dict[str, tuple[Write, Callable[[str], ps.DataFrame]]] = {
    "parquet": (lambda frame, out, way: frame.write_parquet(out, resume=way, compression="zstd"), ps.read_parquet),
    "small files": (lambda frame, out, way: frame.write_parquet(out, resume=way, rows_per_file=3), ps.read_parquet),
    "partitions": (
        lambda frame, out, way: frame.with_column("k", col("a") % 3).write_parquet(
            out, resume=way, partition_cols=["k"], rows_per_file=5
        ),
        ps.read_parquet,
    ),
    "csv": (lambda frame, out, way: frame.write_csv(out, resume=way), ps.read_csv),
    "csv.gz": (lambda frame, out, way: frame.write_csv(out, resume=way, compression="gzip"), ps.read_csv),
    "json": (lambda frame, out, way: frame.write_json(out, resume=way), ps.read_json),
    "json.zst": (lambda frame, out, way: frame.write_json(out, resume=way, compression="zstd"), ps.read_json),
    "numpy": (lambda frame, out, way: frame.write_numpy(out, column="b", resume=way), npy),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_survives_a_failure_a_retry_and_a_change(
    out: Path, tmp_path: Path, calls: Calls, broken: Path, kind: str
) -> None:
    write, read = FORMATS[kind]
    source = write_numbers(tmp_path / "in", range(20), range(20, 40), range(40, 60))

    def run(way: Any = True) -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, at=43, rows=(out, 20))
        write(frame, str(out), way)

    with pytest.raises(PenstockError, match="no luck with 43"):
        run()
    broken.unlink()
    run()
    assert column(out, "b", read) == [a * 10 for a in range(60)]
    calls.take()
    # A file changes: what its rows have become is taken out of the files, and nothing else is done again.
    pq.write_table(pa.table({"a": [1000, 1001]}), source / "1.parquet")
    with pytest.raises(JobChangedError, match=r"input file '.*1\.parquet' was changed"):
        run()
    run("force")
    assert column(out, "b", read) == [*(a * 10 for a in (*range(20), *range(40, 60), 1000, 1001))]
    again = {int(value) for value in calls.take()}
    assert {1000, 1001} <= again
    if kind != "partitions":  # there a part is kept whole or not
        assert again == {1000, 1001}
    # And a file is removed.
    os.unlink(source / "0.parquet")
    run("force")
    assert column(out, "b", read) == [*(a * 10 for a in (*range(40, 60), 1000, 1001))]
    if kind != "partitions":
        assert not calls.take()


def test_images_are_written_by_a_job(out: Path, tmp_path: Path, calls: Calls, broken: Path) -> None:
    def frame() -> ps.DataFrame:
        fails = breaking(calls, broken, at=3)

        @ps.func(return_dtype=DataType.image("RGB"))
        def picture(a: int) -> np.ndarray[Any, Any]:
            return np.full((4, 4, 3), fails(a), np.uint8)

        return numbers(5).select(picture(col("a")).alias("image"))

    with pytest.raises(PenstockError, match="no luck with 3"):
        frame().write_images(str(out), "image", resume=True)
    broken.unlink()
    files = frame().write_images(str(out), "image", resume=True).to_pydict()
    shades = [image[0, 0, 0] for image in ps.read_images(str(out)).to_pydict()["image"]]
    assert sorted(shades) == [0, 10, 20, 30, 40]
    assert frame().write_images(str(out), "image", resume=True).to_pydict() == files


def test_types_that_differ_from_batch_to_batch(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def frame() -> ps.DataFrame:
        return numbers(20).map_batches(lambda b: {"a": b["a"] if b["a"][0] < 10 else b["a"] / 2}, batch_size=10)

    first = frame().write_parquet(str(out), resume=True).to_pydict()
    expected = [*(float(a) for a in range(10)), *(a / 2 for a in range(10, 20))]
    assert sorted(column(out)) == sorted(expected)
    assert frame().write_parquet(str(out), resume=True).to_pydict() == first
    assert "Nothing was done" in capsys.readouterr().err


# --- what changed ---


def changed_function(a: int) -> int:
    return a * 11


def test_a_change_is_refused_and_named(out: Path, tmp_path: Path, model_server: Any) -> None:
    source = write_numbers(tmp_path / "in", range(3))
    provider = ps.OpenAIProvider(base_url=model_server.openai_url, api_key="x") if hasattr(ps, "OpenAIProvider") else None
    assert provider is None or provider


def with_prompt(url: str, **changes: Any) -> ps.DataFrame:
    from penstock.functions import prompt

    options = {"model": "tiny", "system_message": "Repeat.", "temperature": 0.0} | changes
    return numbers(3).with_column("b", prompt(col("a").cast(DataType.string()), provider="openai", base_url=url, api_key="k", **options))
