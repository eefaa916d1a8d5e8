"""Jobs into sinks other than folders of files: killed while rows are staged, and while they are loaded."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import (
    InvalidArgumentError,
    JobChangedError,
    JobError,
    JobRunningError,
    OutputExistsError,
    WriteError,
)
from penstock.io.commit.job_lock import LocalLock
from penstock.io.commit.target import LocalPlace
from penstock.io.tables.sql.sink import SqlSink
from tests.forked import exit_code
from tests.jobs.load_job import killed_load, write
from tests.jobs.remote_job import NUM_ROWS, job

TENS = [a * 10 for a in range(NUM_ROWS)]


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    return tmp_path / "job"


def taken(calls: Path) -> Counter[str]:
    found = Counter(calls.read_text().split()) if calls.exists() else Counter()
    calls.unlink(missing_ok=True)
    return found


def killed(target: Path, job_dir: Path, calls: Path, moment: str, mode: str = "") -> None:
    arguments = str(target), str(job_dir), str(calls), moment, mode
    assert exit_code(killed_load, *arguments) == -signal.SIGKILL


def rows(target: Path) -> list[int]:
    if target.suffix == ".lance":
        return sorted(ps.read_lance(str(target)).to_pydict()["b"])
    if target.suffix != ".db":
        return sorted(map(int, (target / "numbers").read_text().split()))
    with closing(sqlite3.connect(target)) as database:
        return [b for (b,) in database.execute("SELECT b FROM numbers ORDER BY b")]


def test_a_table_is_written_once_however_often_the_job_is_killed(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    target = tmp_path / "numbers.db"
    killed(target, job_dir, calls, "staging")
    assert taken(calls)
    killed(target, job_dir, calls, "loading")
    assert 0 < sum(taken(calls).values()) < NUM_ROWS
    assert len(list(tmp_path.glob("numbers.db-penstock*"))) == 1
    killed(target, job_dir, calls, "loaded")
    assert rows(target) == TENS
    write(str(target), str(job_dir), str(calls))
    assert rows(target) == TENS
    assert not taken(calls)
    assert not list(tmp_path.glob("numbers.db-penstock*")), "what a killed run staged is removed"


@pytest.mark.parametrize("name", ["numbers.db", "numbers.lance"])
def test_rows_are_added_once_however_often_the_job_is_killed(
    tmp_path: Path, job_dir: Path, calls: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    write(str(target), str(tmp_path / "first"), str(calls))
    taken(calls)
    killed(target, job_dir, calls, "committing", "append")
    assert rows(target) == TENS
    killed(target, job_dir, calls, "loaded", "append")
    assert rows(target) == sorted(TENS * 2)
    assert sum(taken(calls).values()) == NUM_ROWS
    for said in ("and was killed then", "were loaded into"):
        write(str(target), str(job_dir), str(calls), mode="append")
        assert said in capsys.readouterr().err
        assert rows(target) == sorted(TENS * 2)
    assert not taken(calls)
    assert not list(tmp_path.glob("numbers.db-penstock*"))
    assert tables(target) == ["numbers"]


def tables(target: Path) -> list[str]:
    if target.suffix != ".db":
        return ["numbers"]
    with closing(sqlite3.connect(target)) as database:
        return [name for (name,) in database.execute("SELECT name FROM sqlite_master")]


def test_a_failed_run_after_a_kill_does_not_count_as_loaded(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    target = tmp_path / "numbers.db"
    killed(target, job_dir, calls, "committing", "append")
    with pytest.raises(JobChangedError):
        job(str(calls)).select("b").write_sql(
            "numbers", f"sqlite:///{target}", mode="append", resume=True, job_dir=job_dir
        )
    write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == TENS


def test_a_database_that_was_put_back_gets_its_rows_again(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    target = tmp_path / "numbers.db"
    write(str(target), str(tmp_path / "first"), str(calls))
    backup = target.read_bytes()
    killed(target, job_dir, calls, "loaded", "append")
    target.write_bytes(backup)
    write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == sorted(TENS * 2)


def test_an_interrupt_right_after_the_commit_adds_nothing_twice(
    tmp_path: Path, job_dir: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "numbers.db"

    commit = SqlSink.commit

    def interrupted(sink: SqlSink, records: Any) -> None:
        commit(sink, records)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqlSink, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == TENS
    write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == TENS
    assert tables(target) == ["numbers"]


def test_an_append_that_fails_is_not_taken_for_one_that_was_done(
    tmp_path: Path, job_dir: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "numbers.db"
    write(str(target), str(tmp_path / "first"), str(calls))
    with monkeypatch.context() as patched:
        patched.setattr(SqlSink, "_statements", lambda *_: ["NO SUCH STATEMENT"])
        with pytest.raises(WriteError):
            write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == TENS
    write(str(target), str(job_dir), str(calls), mode="append")
    assert rows(target) == sorted(TENS * 2)


def test_a_custom_sink(tmp_path: Path, job_dir: Path, calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "numbers"
    killed(target, job_dir, calls, "loading")
    assert sum(taken(calls).values()) == NUM_ROWS
    assert not (target / "numbers").exists()
    write(str(target), str(job_dir), str(calls))
    assert rows(target) == TENS
    write(str(target), str(job_dir), str(calls))
    assert "The rows of this job were loaded into numbers in" in capsys.readouterr().err
    assert not taken(calls)


def test_the_target_refuses_before_the_work(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    target = tmp_path / "numbers.db"
    with closing(sqlite3.connect(target)) as database:
        database.execute("CREATE TABLE numbers (x INTEGER)")
    with pytest.raises(OutputExistsError, match="exists already"):
        write(str(target), str(job_dir), str(calls))
    assert not taken(calls)


def test_recomputed_rows_are_not_appended_to_loaded_ones(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    target = tmp_path / "numbers.db"
    write(str(target), str(job_dir), str(calls))
    next(job_dir.glob("*.parquet")).unlink()
    with pytest.raises(JobError, match="use mode='overwrite' to replace them all"):
        write(str(target), str(job_dir), str(calls))
    write(str(target), str(job_dir), str(calls), mode="overwrite")
    assert rows(target) == TENS


def test_the_error_of_another_query_into_the_same_table_names_job_dir(
    tmp_path: Path, job_dir: Path, calls: Path
) -> None:
    target = str(tmp_path / "numbers.db")
    write(target, str(job_dir), str(calls))
    other = job(str(calls)).select("b")
    with pytest.raises(JobChangedError) as failure:
        other.write_sql("numbers", f"sqlite:///{target}", mode="append", resume=True, job_dir=job_dir)
    assert "job_dir=" in failure.value.__notes__[-1]


def test_two_runs_do_not_load_at_once(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    other = LocalLock(LocalPlace(str(job_dir)))
    other.take()
    with pytest.raises(JobRunningError):
        write(str(tmp_path / "numbers.db"), str(job_dir), str(calls))
    other.release()


def test_lance_is_written_once(tmp_path: Path, job_dir: Path, calls: Path) -> None:
    frame, target = job(str(calls)), str(tmp_path / "numbers.lance")
    first = frame.write_lance(target, resume=True, job_dir=job_dir).to_pydict()
    assert frame.write_lance(target, resume=True, job_dir=job_dir).to_pydict() == first
    assert sorted(ps.read_lance(target).to_pydict()["b"]) == TENS
    assert sum(taken(calls).values()) == NUM_ROWS


def test_a_job_dir_belongs_to_one_target(tmp_path: Path) -> None:
    df, url = ps.from_pydict({"a": [1, 2]}), f"sqlite:///{tmp_path / 'y.db'}"
    df.write_sql("one", url, resume=True, job_dir=str(tmp_path / "job"))
    with pytest.raises(JobError, match=r"into table one .*its own job_dir="):
        df.write_sql("two", url, resume=True, job_dir=str(tmp_path / "job"))


def test_a_table_that_was_dropped_is_filled_again(tmp_path: Path) -> None:
    df, path = ps.from_pydict({"a": [1, 2]}), tmp_path / "y.db"
    df.write_sql("one", f"sqlite:///{path}", resume=True, job_dir=str(tmp_path / "job"))
    with sqlite3.connect(path) as database:
        database.execute("drop table one")
    df.write_sql("one", f"sqlite:///{path}", resume=True, job_dir=str(tmp_path / "job"))
    assert ps.read_sql("select a from one", f"sqlite:///{path}").to_pydict() == {"a": [1, 2]}


def test_a_job_dir_needs_resume(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="resume=True"):
        ps.range(2).write_sql("t", f"sqlite:///{tmp_path / 'y.db'}", job_dir="anywhere")
