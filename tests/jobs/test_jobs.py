"""Writes with ``resume=``: finished work is skipped, changes are refused, deleted files are made again."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DataType, col
from penstock.engine import lineage
from penstock.errors import (
    InvalidArgumentError,
    JobChangedError,
    JobError,
    JobRunningError,
    OutputExistsError,
    PenstockError,
)
from penstock.functions import prompt
from penstock.io.commit.job_lock import LocalLock
from penstock.io.commit.target import LocalPlace
from penstock.testing import ModelServer
from tests.io.helpers import visible_files
from tests.jobs.helpers import Calls, breaking, column, errors, num_safe, numbers, staged, wait_until, write_numbers

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
    with ps.config(checkpoint_interval=60):  # whole files
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


def test_nothing_is_visible_before_the_end_of_a_job(out: Path, calls: Calls, broken: Path, tmp_path: Path) -> None:
    source = write_numbers(tmp_path / "in", range(50), range(50, 100))
    frame = tens(ps.read_parquet(str(source)), calls, broken, at=99, rows=(out, 50))
    with pytest.raises(PenstockError, match="no luck with 99") as failure:
        frame.write_parquet(str(out), resume=True)
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


@pytest.mark.parametrize("is_schema_known", [True, False])
@pytest.mark.parametrize("partition_cols", [(), ("k",)])
def test_an_empty_file_goes_when_rows_come(
    out: Path, tmp_path: Path, partition_cols: Sequence[str], is_schema_known: bool
) -> None:
    source = write_numbers(tmp_path / "in", [0])

    def write(resume: Any) -> list[str]:
        frame = ps.read_parquet(str(source)).with_column("k", col("a") % 2)
        frame = frame if is_schema_known else frame.map_batches(lambda batch: batch)
        frame.where(col("a") > 0).write_parquet(str(out), resume=resume, partition_cols=partition_cols)
        return visible_files(out)

    empty = write(True)
    assert len(empty) == 1
    assert write("errors") == write(True) == empty
    write_numbers(tmp_path / "in", [0], [1, 2])
    files = write("force")
    assert column(out) == [1, 2]
    assert not set(empty) & set(files)


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
    with pytest.raises(JobChangedError, match=r"1\.parquet changed from '"):
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


def prompted(url: str, source: Path, **changes: Any) -> ps.DataFrame:
    options = {"model": "tiny", "system_message": "Repeat.", "temperature": 0.0} | changes
    text = col("a").cast(DataType.string())
    return ps.read_parquet(str(source)).with_column("b", prompt(text, provider="openai", **options))


def test_a_change_is_refused_and_named(out: Path, tmp_path: Path, model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="k")
    source = write_numbers(tmp_path / "in", range(3))
    first = prompted(model_server.openai_url, source).write_parquet(str(out), resume=True).to_pydict()
    changes: list[tuple[str, ps.DataFrame, dict[str, Any]]] = [
        ("model", prompted("", source, model="small"), {}),
        (
            "prompt: system_message changed from 'Repeat.' to 'Say it again.'",
            prompted("", source, system_message="Say it again."),
            {},
        ),
        ("temperature", prompted("", source, temperature=0.5), {}),
        ("is new", prompted("", source).with_column("c", col("a") + 1), {}),
    ]
    for named, frame, options in changes:
        with pytest.raises(JobChangedError, match=re.escape(named)) as refusal:
            frame.write_parquet(str(out), resume=True, **options)
        assert repr(str(out)) in str(refusal.value)
        assert "resume='force'" in str(refusal.value)
    assert model_server.num_requests == 3
    assert prompted("", source).write_parquet(str(out), resume=True).to_pydict() == first
    # Forced, another model is asked again; the old one's rows are gone.
    prompted("", source, model="small").write_parquet(str(out), resume="force")
    assert model_server.num_requests == 6
    assert column(out, "b") == ["0", "1", "2"]
    assert len(visible_files(out)) == 1


def test_a_changed_function_is_refused_and_named(out: Path) -> None:
    def frame(factor: int) -> ps.DataFrame:
        @ps.func(return_dtype=INT)
        def times(a: int) -> int:
            return a * factor

        return numbers(3).with_column("b", times(col("a")))

    frame(2).write_parquet(str(out), resume=True)
    with pytest.raises(JobChangedError, match="times"):
        frame(3).write_parquet(str(out), resume=True)
    frame(3).write_parquet(str(out), resume="force")
    assert column(out, "b") == [0, 3, 6]


def looked_up(cfg: dict[str, int], verb: str = "func") -> ps.DataFrame:
    def f(a: int) -> int:
        return a * cfg["k"]

    def of_batch(batch: dict[str, Any]) -> dict[str, Any]:
        return {"b": batch["a"] * cfg["k"]}

    if verb == "map_batches":
        return numbers(3).map_batches(of_batch)
    return numbers(3).select(ps.func(f, return_dtype=INT)(col("a")).alias("b"))


@pytest.mark.parametrize(("verb", "name"), [("func", "f"), ("map_batches", "of_batch")])
def test_a_changed_closure_value_is_refused_and_named(out: Path, verb: str, name: str) -> None:
    looked_up({"k": 2}, verb).write_parquet(str(out), resume=True)
    with pytest.raises(JobChangedError, match=f"the closure variable cfg of function {name}: k changed from 2 to 5"):
        looked_up({"k": 5}, verb).write_parquet(str(out), resume=True)
    looked_up({"k": 5}, verb).write_parquet(str(out), resume="force")
    assert column(out, "b") == [0, 5, 10]


def test_an_equal_closure_value_is_no_change(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looked_up({"k": 2}).write_parquet(str(out), resume=True)
    looked_up({"k": 2}).write_parquet(str(out), resume=True)
    assert "Nothing was done" in capsys.readouterr().err


def test_a_list_that_changed_is_refused_and_named(out: Path) -> None:
    seen: list[int] = []

    @ps.func(return_dtype=INT)
    def noted(a: int) -> int:
        seen.append(a)
        return a

    frame = numbers(3).select(noted(col("a")).alias("b"))
    frame.write_parquet(str(out), resume=True)
    with pytest.raises(
        JobChangedError, match=r"closure variable seen of function noted changed from \[\] to \[0, 1, 2\]"
    ):
        frame.write_parquet(str(out), resume=True)


def test_another_order_of_columns_is_refused(out: Path) -> None:
    frame = numbers(3).with_column("b", col("a") + 1)
    frame.select("a", "b").write_csv(str(out), resume=True)
    with pytest.raises(JobChangedError, match=re.escape("order of columns changed from ['a', 'b'] to ['b', 'a']")):
        frame.select("b", "a").write_csv(str(out), resume=True)
    frame.select("b", "a").write_csv(str(out), resume="force")
    assert [(out / path).read_text().split()[0] for path in visible_files(out)] == ['"b","a"']


def test_rows_in_memory_that_changed_are_refused(out: Path) -> None:
    numbers(3).write_parquet(str(out), resume=True)
    with pytest.raises(JobChangedError, match="memory"):
        numbers(4).write_parquet(str(out), resume=True)
    numbers(4).write_parquet(str(out), resume="force")
    assert column(out) == [0, 1, 2, 3]


def test_a_forced_job_that_fails_continues_with_the_new_query(
    out: Path, tmp_path: Path, calls: Calls, broken: Path
) -> None:
    source = write_numbers(tmp_path / "in", range(5), range(5, 10))

    def write(resume: Any) -> None:
        tens(ps.read_parquet(str(source)), calls, broken, at=100).write_parquet(str(out), resume=resume)

    write(True)
    pq.write_table(pa.table({"a": [100]}), source / "0.parquet")
    before = visible_files(out)
    for resume in ("force", True):
        with pytest.raises(PenstockError, match="no luck with 100"):
            write(resume)
        assert visible_files(out) == before
        assert column(out) == list(range(10)), "what was committed is seen until the next commit"
    calls.take()
    broken.unlink()
    write(True)
    assert column(out) == [*range(5, 10), 100]
    assert list(calls.take()) == ["100"]


# --- what was deleted or damaged ---


def test_files_that_were_deleted_or_damaged_are_made_again(out: Path, calls: Calls, broken: Path) -> None:
    def write() -> dict[str, Any]:
        frame = tens(numbers(40), calls, broken)
        with ps.config(checkpoint_interval=60):  # whole files
            files: dict[str, Any] = frame.write_parquet(str(out), resume=True, rows_per_file=10).to_pydict()
        return files

    files = write()
    calls.take()
    os.unlink(files["path"][0])
    os.truncate(files["path"][2], 50)
    write()
    assert column(out, "b") == [a * 10 for a in range(40)]
    assert sum(calls.take().values()) == 20
    assert len(visible_files(out)) == 4 or sorted(write()["path"]) == [str(out / name) for name in visible_files(out)]


@pytest.mark.parametrize("partition_cols", [(), ("k",)])
def test_a_staged_file_that_was_deleted_is_made_again(
    out: Path, tmp_path: Path, calls: Calls, broken: Path, partition_cols: Sequence[str]
) -> None:
    source = write_numbers(tmp_path / "in", range(20), range(20, 40))

    def write() -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, at=39, rows=(out, 20)).with_column("k", col("a") % 2)
        frame.write_parquet(str(out), resume=True, rows_per_file=5, partition_cols=partition_cols)

    with pytest.raises(PenstockError, match="no luck with 39"):
        write()
    staged(out, "*.parquet")[1].unlink()
    (out / "_penstock_job" / "data" / "stray.parquet").write_text("left by a crash")
    broken.unlink()
    write()
    assert column(out, "b") == [a * 10 for a in range(40)]
    assert not (out / "stray.parquet").exists()


@pytest.mark.parametrize("partition_cols", [(), ("k",)])
def test_a_staged_file_that_has_changed_is_made_again(
    out: Path,
    tmp_path: Path,
    calls: Calls,
    broken: Path,
    partition_cols: Sequence[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = write_numbers(tmp_path / "in", range(20), range(20, 40))

    def write() -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, at=39, rows=(out, 20)).with_column("k", col("a") % 2)
        frame.write_csv(str(out), resume=True, rows_per_file=5, partition_cols=partition_cols)

    with pytest.raises(PenstockError, match="no luck with 39"):
        write()
    changed = staged(out, "*.csv")[1]
    content = bytearray(changed.read_bytes())
    content[-3] ^= 1  # in the last number, which stays one
    changed.write_bytes(content)
    broken.unlink()
    calls.take()
    write()
    assert column(out, "b", ps.read_csv) == [a * 10 for a in range(40)]
    assert changed.name in caplog.text
    assert "its rows are computed again" in caplog.text
    assert partition_cols or sum(calls.take().values()) < 40, "intact files were computed again"


@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "gone"])
def test_a_damaged_journal_costs_work_and_no_rows(
    out: Path, tmp_path: Path, calls: Calls, broken: Path, damage: str
) -> None:
    source = write_numbers(tmp_path / "in", range(20), range(20, 40), range(40, 60))

    def write() -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, at=59, rows=(out, 40))
        frame.write_parquet(str(out), resume=True)

    with pytest.raises(PenstockError, match="no luck with 59"):
        write()
    journal = max((out / "_penstock_job" / "journal").iterdir())
    match damage:
        case "torn":
            os.truncate(journal, journal.stat().st_size - 7)
        case "garbage":
            journal.write_bytes(journal.read_bytes() + os.urandom(100))
        case "empty":
            journal.write_bytes(b"")
        case _:
            journal.unlink()
    broken.unlink()
    write()
    assert column(out, "b") == [a * 10 for a in range(60)]
    assert len(visible_files(out)) == len(pq.ParquetDataset(out).files)


def damage(out: Path, what: str) -> None:
    """Damage the record of a finished job; its journal has two or three entries, by how fast the parts came."""
    job = out / "_penstock_job"
    entries = sorted((job / "journal").iterdir())
    match what:
        case "flipped":
            content = bytearray(entries[1].read_bytes())
            content[len(content) // 2] ^= 1
            entries[1].write_bytes(content)
        case "entry gone":
            entries[1].unlink()
        case "end gone":
            entries[-1].unlink()
        case "gone":
            shutil.rmtree(job / "journal")
            (job / "finished.json").unlink()
        case "description":
            description = (job / "job.json").read_text()
            (job / "job.json").write_text(description.replace("a", "b", 1))


@pytest.mark.parametrize("resume", [True, "force"])
@pytest.mark.parametrize("what", ["flipped", "entry gone", "end gone", "gone", "description"])
def test_a_finished_job_with_a_damaged_record_writes_no_row_twice(
    out: Path, tmp_path: Path, calls: Calls, broken: Path, what: str, resume: Any
) -> None:
    source = write_numbers(tmp_path / "in", range(20), range(20, 40), range(40, 60))

    def write(resume: Any, **options: Any) -> None:
        frame = tens(ps.read_parquet(str(source)), calls, broken, cache=True)
        frame.write_parquet(str(out), resume=resume, **options)

    write(True)
    calls.take()
    damage(out, what)
    write_numbers(source, range(20), range(20, 40), range(40, 60), range(60, 80))
    with pytest.raises(JobError, match=r"damaged.*mode='overwrite'"):
        write(resume)
    assert column(out) == list(range(60))
    if what == "description":
        (out / "_penstock_job" / "job.json").unlink()
    write(resume, mode="overwrite")
    assert column(out) == list(range(80))
    assert sum(calls.take().values()) == 20  # the others are in the ledger


def test_a_damaged_journal_without_its_files_is_not_complete(out: Path, calls: Calls, broken: Path) -> None:
    for _ in range(2):
        tens(numbers(40), calls, broken).write_parquet(str(out), resume=True)
        assert column(out) == list(range(40))
        shutil.rmtree(out / "_penstock_job" / "journal")
        for name in visible_files(out):
            (out / name).unlink()


def test_an_interrupted_commit_is_completed(out: Path, calls: Calls, broken: Path) -> None:
    with ps.config(checkpoint_interval=60):  # whole files
        tens(numbers(40), calls, broken).write_parquet(str(out), resume=True, rows_per_file=10)
    calls.take()
    # As a crash within the commit leaves it: two files are in place, one is staged, and one of those was deleted.
    job, names = out / "_penstock_job", visible_files(out)
    (job / "data").mkdir(exist_ok=True)
    (out / names[0]).rename(job / "data" / names[0])
    (out / names[1]).unlink()
    (job / "finished.json").rename(job / "commit.json")
    tens(numbers(40), calls, broken).write_parquet(str(out), resume=True, rows_per_file=10)
    assert column(out, "b") == [a * 10 for a in range(40)]
    assert sum(calls.take().values()) == 10


# --- rows that fail ---


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_that_failed_are_tried_again(out: Path, calls: Calls, broken: Path, is_async: bool) -> None:
    def write(resume: Any) -> None:
        fails = breaking(calls, broken, at=7)

        async def later(a: int) -> int:
            return fails(a)

        function = ps.func(return_dtype=INT, on_error="log")(later if is_async else fails)
        numbers(20).with_column("b", function(col("a"))).write_parquet(str(out), resume=resume)

    write(True)
    assert sum(calls.take().values()) == 20
    assert ps.read_parquet(str(out)).where(col("b").is_null()).to_pydict()["a"] == [7]
    assert "no luck with 7" in str(errors(out))
    write(True)
    assert not calls.take()
    write("errors")  # it fails again
    assert calls.take() == {"7": 1}
    assert len(errors(out)) == 1
    assert sorted(column(out)) == list(range(20))
    broken.unlink()
    write("errors")
    assert calls.take() == {"7": 1}
    assert column(out, "b") == [a * 10 for a in range(20)]
    assert errors(out) == []
    write("errors")
    assert not calls.take()


@pytest.mark.parametrize("verb", ["map", "flat_map", "map_batches", "limit"])
def test_lots_that_failed_are_tried_again(out: Path, tmp_path: Path, calls: Calls, broken: Path, verb: str) -> None:
    source = write_numbers(tmp_path / "in", range(10), range(10, 20))

    def write(resume: Any) -> None:
        fails, frame = breaking(calls, broken, at=7), ps.read_parquet(str(source))
        match verb:
            case "map":
                frame = frame.map(lambda row: {"b": fails(row["a"])}, on_error="log")
            case "flat_map":
                frame = frame.flat_map(lambda row: [{"b": fails(row["a"])}] * 2, on_error="log")
            case "map_batches":
                frame = frame.map_batches(
                    lambda batch: {"b": [fails(int(a)) for a in batch["a"]]}, batch_size=5, on_error="log"
                )
            case _:
                frame = tens(frame, calls, broken, at=7, on_error="log").limit(19)
        frame.write_parquet(str(out), resume=resume)

    write(True)
    assert len(errors(out)) == 1
    calls.take()
    write("errors")
    assert len(errors(out)) == 1
    again = calls.take()
    assert again["7"]
    if verb != "limit":
        assert not any(int(value) >= 10 for value in again), "of the other file no row failed"
    broken.unlink()
    write("errors")
    assert errors(out) == []
    times = 2 if verb == "flat_map" else 1
    assert column(out, "b") == sorted([a * 10 for a in range(19 if verb == "limit" else 20)] * times)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("with_column", "parquet"), ("with_column", "csv"), ("with_column", "json"), ("flat_map", "parquet")],
)
def test_rows_that_are_redone_take_their_places(
    out: Path, tmp_path: Path, broken: Path, verb: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MAX_LOT_ROWS", 64)  # several lots
    source = write_numbers(tmp_path / "in", range(300), range(300, 400))
    path = str(broken)

    def ten_times(a: int) -> int:
        if os.path.exists(path) and (a % 100 == 17 or a in (0, 399)):
            raise ValueError(f"no luck with {a}")
        return a * 10

    def write(resume: Any) -> list[int]:
        frame = ps.read_parquet(str(source))
        if verb == "with_column":
            function = ps.func(return_dtype=INT, on_error="log")(ten_times)
            frame = frame.with_column("b", function(col("a")))
        else:
            frame = frame.flat_map(
                lambda row: [{"a": row["a"], "b": ten_times(row["a"])}] * (row["a"] % 3), on_error="log"
            )
        getattr(frame, f"write_{kind}")(str(out), resume=resume, rows_per_file=50)
        assert max(getattr(ps, f"read_{kind}")(str(out / name)).count_rows() for name in visible_files(out)) <= 50
        return cast(list[int], getattr(ps, f"read_{kind}")(str(out)).to_pydict()["b"])

    assert len(write(True)) < 400 or verb == "with_column"
    write("errors")  # they fail again
    (out / visible_files(out)[3]).unlink()
    write(True)
    broken.unlink()
    times = [1] * 3 if verb == "with_column" else range(3)
    assert write("errors") == [a * 10 for a in range(400) for _ in range(times[a % 3])]
    assert errors(out) == []
    (out / visible_files(out)[0]).unlink()
    assert write(True) == [a * 10 for a in range(400) for _ in range(times[a % 3])]


def test_errors_of_all_runs_are_kept(
    out: Path, tmp_path: Path, calls: Calls, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that failed in the first run, which was then stopped, is still among the errors at the end."""
    source = write_numbers(tmp_path / "in", range(10), range(10, 20))
    stop = tmp_path / "stop"
    stop.touch()

    def write(resume: Any = True) -> None:
        first = tens(ps.read_parquet(str(source)), calls, broken, at=3, on_error="log")
        fatal = ps.func(return_dtype=INT)(breaking(calls, stop, at=19, rows=(out, 10)))
        first.with_column("c", fatal(col("a"))).write_parquet(str(out), resume=resume)

    with pytest.raises(PenstockError, match="no luck with 19"):
        write()
    stop.unlink()
    capsys.readouterr()
    write()
    assert len(errors(out)) == 1
    assert '1 row failed in earlier runs; resume="errors" runs failed rows again.' in capsys.readouterr().err
    write()
    assert 'Nothing was done. 1 row failed; resume="errors" runs failed rows again.' in capsys.readouterr().err
    broken.unlink()
    write("errors")
    assert errors(out) == []
    assert column(out, "b") == [a * 10 for a in range(20)]
    assert "failed" not in capsys.readouterr().err


# --- modes, locks, interruptions ---


def test_modes(out: Path) -> None:
    numbers(3).write_parquet(str(out))
    with pytest.raises(OutputExistsError, match="already holds data"):
        numbers(4).write_parquet(str(out), resume=True)
    numbers(4).write_parquet(str(out), resume=True, mode="append")
    assert column(out) == [0, 0, 1, 1, 2, 2, 3]
    numbers(4).write_parquet(str(out), resume=True, mode="append")
    assert column(out) == [0, 0, 1, 1, 2, 2, 3], "the same job is done"
    numbers(2).write_parquet(str(out), resume=True, mode="append")
    assert column(out) == [0, 0, 0, 1, 1, 1, 2, 2, 3], "another one adds its rows"


def test_a_job_that_overwrites(out: Path, calls: Calls, broken: Path) -> None:
    numbers(3).write_parquet(str(out))
    before = visible_files(out)

    def write(count: int = 5) -> None:
        tens(numbers(count), calls, broken, at=4).write_parquet(str(out), resume=True, mode="overwrite")

    with pytest.raises(PenstockError, match="no luck with 4"):
        write()
    assert visible_files(out) == before
    broken.unlink()
    write()
    assert column(out, "b") == [0, 10, 20, 30, 40]
    calls.take()
    write()
    assert not calls.take()
    with pytest.raises(JobChangedError):
        write(6)


def test_a_job_has_one_run_at_a_time(out: Path) -> None:
    lock = LocalLock(LocalPlace(str(out)))
    lock.take()
    try:
        with pytest.raises(JobRunningError, match=rf"Another run is at work .* \(process {os.getpid()} on "):
            numbers(3).write_parquet(str(out), resume=True)
    finally:
        lock.release()
    numbers(3).write_parquet(str(out), resume=True)
    assert column(out) == [0, 1, 2]


def test_an_interrupted_job_keeps_what_is_done(out: Path, tmp_path: Path, calls: Calls) -> None:
    source, stop = write_numbers(tmp_path / "in", range(10), range(10, 20)), tmp_path / "stop"
    stop.touch()

    def write() -> None:
        path = str(stop)

        @ps.func(return_dtype=INT)
        def interrupted(a: int) -> int:
            calls.note(a)
            if a == 19 and os.path.exists(path):
                wait_until(lambda: num_safe(out) >= 10)
                os.kill(os.getpid(), signal.SIGINT)
            return a * 10

        ps.read_parquet(str(source)).with_column("b", interrupted(col("a"))).write_parquet(str(out), resume=True)

    with pytest.raises(KeyboardInterrupt):
        write()
    safe = num_safe(out)
    assert safe >= 10
    calls.take()
    stop.unlink()
    write()
    assert sum(calls.take().values()) == 20 - safe
    assert column(out, "b") == [a * 10 for a in range(20)]


@pytest.mark.parametrize("resume", ["eror", 1, ["force"], col("a")])
def test_an_unknown_resume_is_refused(out: Path, resume: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="use True, 'force' or 'errors'"):
        numbers(3).write_parquet(str(out), resume=resume)
    assert not out.exists()


def test_a_budget_and_overwrite_replace_what_a_finished_job_made(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    ps.range(3).write_parquet(out, mode="overwrite", budget=1.0)
    ps.range(5).write_parquet(out, mode="overwrite", budget=1.0)
    assert ps.read_parquet(out).count_rows() == 5


def test_what_can_never_run_leaves_no_job(tmp_path: Path) -> None:
    ps.set_provider("openai", base_url="http://localhost:1/v1", api_key="test")
    answered = ps.range(2).select(prompt(ps.lit("hello"), model="of no known price"))
    with pytest.raises(InvalidArgumentError, match="price") as refusal:
        answered.write_parquet(str(tmp_path / "out"), budget=1.0)
    assert not (tmp_path / "out").exists()
    assert not getattr(refusal.value, "__notes__", [])


def test_a_job_that_is_at_work_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lock = LocalLock(LocalPlace(str(out)))
    lock.take()
    try:
        with pytest.raises(JobRunningError, match="Another run is at work"):
            ps.range(3).write_parquet(str(out), mode="overwrite")
    finally:
        lock.release()
    ps.range(3).write_parquet(str(out), mode="overwrite")
    assert ps.read_parquet(str(out)).count_rows() == 3
