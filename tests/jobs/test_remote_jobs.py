"""Jobs on an S3-compatible store: killed and resumed, here and on another machine, by one run at a time."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.cache.ledger import key_of, open_ledger
from penstock.dashboard import job as dashboard_job
from penstock.errors import (
    JobChangedError,
    JobError,
    JobRunningError,
    OutputExistsError,
    PenstockError,
    QueryCancelledError,
    WriteError,
)
from penstock.io.commit import lease
from penstock.io.commit.job_lock import StoreLock
from penstock.io.commit.output import JobOutput
from penstock.io.commit.target import StorePlace
from penstock.jobs import folder
from penstock.jobs.folder import open_job_folder
from penstock.jobs.journal import Journal
from penstock.jobs.ledger import StoreLedger
from penstock.jobs.state import JobState
from penstock.storage.storage_options import StorageOptions
from tests.forked import exit_code
from tests.jobs.remote_job import NUM_ROWS, job, killed_job
from tests.storage.servers import Bucket

TENS = [a * 10 for a in range(NUM_ROWS)]


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ps.config(checkpoint_interval=0.001, progress=True):
        yield


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def taken(calls: Path) -> Counter[str]:
    """Return how often each row was computed since the last time."""
    found = Counter(calls.read_text().split()) if calls.exists() else Counter()
    calls.unlink(missing_ok=True)
    return found


def break_rows(calls: Path, *rows: int) -> None:
    """Have the function of the job fail for these rows."""
    Path(f"{calls}.broken").write_text(" ".join(map(str, rows)))


def mend(calls: Path) -> None:
    Path(f"{calls}.broken").unlink()


def out(bucket: Bucket) -> str:
    return f"{bucket.url}/some/out"


def write(bucket: Bucket, frame: ps.DataFrame, resume: Any = True, **options: Any) -> dict[str, list[Any]]:
    return frame.write_parquet(out(bucket), resume=resume, storage_options=bucket.options, **options).to_pydict()


def tens(bucket: Bucket) -> list[int]:
    rows = ps.read_parquet(out(bucket), storage_options=bucket.options).to_pydict()
    return sorted(rows["b"])


def visible(bucket: Bucket) -> list[str]:
    return [key for key in bucket.keys if "_penstock" not in key]


def place(bucket: Bucket) -> StorePlace:
    return StorePlace(out(bucket), StorageOptions(bucket.options))


def ledger_of(bucket: Bucket) -> StoreLedger:
    return StoreLedger(place(bucket), JobOutput(out(bucket), StorageOptions(bucket.options)))


def num_safe(bucket: Bucket) -> int:
    return JobState.of(Journal(place(bucket)).read()).num_rows


def killed(bucket: Bucket, calls: Path, method: str, key: str) -> None:
    """Run the job in a process that kills itself before it calls a method of the store with such a key."""
    assert exit_code(killed_job, out(bucket), dict(bucket.options), str(calls), method, key) == -signal.SIGKILL


# --- killed and resumed ---


def test_a_job_that_is_killed_again_and_again(bucket: Bucket, calls: Path) -> None:
    killed(bucket, calls, "put", "journal/000001-00000002")
    assert visible(bucket) == []
    written = num_safe(bucket)
    assert 0 < written < NUM_ROWS
    taken(calls)
    killed(bucket, calls, "copy_async", "/data/")  # the first of the files that are put in place
    assert sum(taken(calls).values()) == NUM_ROWS - written
    assert visible(bucket) == []
    assert "some/out/_penstock_job/commit.json" in bucket.keys  # from here on the write has happened
    killed(bucket, calls, "delete", "commit.json")
    write(bucket, job(str(calls)))
    assert not taken(calls)
    assert tens(bucket) == TENS
    assert not [key for key in bucket.keys if "/data/" in key or "commit.json" in key]
    assert "some/out/_penstock_job/finished.json" in bucket.keys


def test_a_finished_job_does_nothing_and_says_so(
    bucket: Bucket, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(bucket, job(str(calls)))
    assert sum(taken(calls).values()) == NUM_ROWS
    keys = bucket.keys
    capsys.readouterr()
    assert write(bucket, job(str(calls))) == first
    assert "is complete: 60 rows" in capsys.readouterr().err
    assert not taken(calls)
    assert [key for key in bucket.keys if "/lock/" not in key] == [key for key in keys if "/lock/" not in key]


def test_a_deleted_file_is_made_again(bucket: Bucket, calls: Path) -> None:
    write(bucket, job(str(calls)), rows_per_file=20)
    taken(calls)
    bucket.store.delete([visible(bucket)[0]])
    write(bucket, job(str(calls)), rows_per_file=20)
    assert 0 < sum(taken(calls).values()) <= 20
    assert tens(bucket) == TENS


def test_a_finished_job_with_a_damaged_journal_writes_no_row_twice(bucket: Bucket, calls: Path) -> None:
    write(bucket, job(str(calls), cache=True))
    taken(calls)
    entry = next(path for path, _ in place(bucket).sizes_below("_penstock_job/journal"))
    place(bucket).write(entry, b"damaged")
    with pytest.raises(JobError, match=r"damaged.*mode='overwrite'"):
        write(bucket, job(str(calls), cache=True), "force")
    assert tens(bucket) == TENS
    write(bucket, job(str(calls), cache=True), mode="overwrite")
    assert tens(bucket) == TENS
    assert not taken(calls)


def test_rows_that_failed_are_tried_again(bucket: Bucket, calls: Path) -> None:
    break_rows(calls, 7, 33)
    write(bucket, job(str(calls), on_error="log"))
    assert len([key for key in bucket.keys if "/_errors/" in key]) == 1
    taken(calls)
    mend(calls)
    write(bucket, job(str(calls), on_error="log"), resume="errors")
    assert taken(calls) == {"7": 1, "33": 1}
    assert tens(bucket) == TENS
    assert not [key for key in bucket.keys if "/_errors/" in key]


def test_a_changed_query_is_refused_and_plain_writes_are_too(bucket: Bucket, calls: Path) -> None:
    break_rows(calls, 59)
    with pytest.raises(PenstockError, match="no luck with 59"):
        write(bucket, job(str(calls)))
    with pytest.raises(JobChangedError, match="was begun with another query"):
        write(bucket, job(str(calls)).where(col("a") > 3))
    with pytest.raises(OutputExistsError, match="holds an unfinished job"):
        write(bucket, job(str(calls)), resume=False)


def test_a_changed_input_is_refused_and_force_keeps_the_others(bucket: Bucket, calls: Path) -> None:
    def source(name: str, *values: int) -> None:
        part = ps.from_pydict({"a": list(values)})
        part.write_parquet(f"{bucket.url}/in/{name}", mode="overwrite", storage_options=bucket.options)

    def frame() -> ps.DataFrame:
        rows = ps.read_parquet(f"{bucket.url}/in/**/*.parquet", storage_options=bucket.options)
        return rows.with_column("b", col("a") * 10)

    source("x", 1, 2)
    source("y", 3)
    write(bucket, frame())
    source("y", 4, 5)
    with pytest.raises(JobChangedError, match="in/y"):
        write(bucket, frame())
    write(bucket, frame(), resume="force")
    assert tens(bucket) == [10, 20, 40, 50]


# --- one run at a time ---


def test_a_second_run_is_refused_until_the_first_releases_the_lock(bucket: Bucket, calls: Path) -> None:
    first = StoreLock(place(bucket))
    first.take()
    with pytest.raises(JobRunningError, match=rf"Another run is at work .* \(process {os.getpid()} on .* s ago\)"):
        write(bucket, job(str(calls)))
    with pytest.raises(JobRunningError, match="Another run is at work"):
        write(bucket, ps.range(3), mode="overwrite", resume=False)
    first.release()
    write(bucket, job(str(calls)))
    assert tens(bucket) == TENS


def test_one_of_several_simultaneous_runs_gets_the_job(bucket: Bucket) -> None:
    locks = [StoreLock(place(bucket)) for _ in range(6)]
    start, taken_by = threading.Barrier(len(locks)), []

    def take(lock: StoreLock) -> None:
        start.wait()
        try:
            lock.take()
        except JobRunningError:
            return
        taken_by.append(lock)

    for _ in range(3):
        taken_by.clear()
        threads = [threading.Thread(target=take, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken_by) == 1
        taken_by[0].confirm()
        taken_by[0].release()


def test_a_run_on_another_machine_without_heartbeat_is_dead(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = StoreLock(place(bucket)), StoreLock(place(bucket))
    first.take()
    monkeypatch.setattr("penstock.storage.dead_processes.machine_id", lambda: "another")
    with pytest.raises(JobRunningError, match="5 minutes after it was last seen"):
        second.take()
    monkeypatch.setattr(lease, "DEAD_AFTER", timedelta(seconds=-1))
    second.take()
    with pytest.raises(JobRunningError, match="has taken over the job"):
        first.confirm()
    first.release()  # of nothing
    second.confirm()
    second.release()


def test_a_run_that_lost_the_job_commits_nothing(bucket: Bucket, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm = StoreLock.confirm
    monkeypatch.setattr(lease, "DEAD_AFTER", timedelta(seconds=-1))

    def late(lock: StoreLock) -> None:
        monkeypatch.setattr(StoreLock, "confirm", confirm)
        write(bucket, job(str(calls)))  # the run that takes over, to its end
        lock.confirm()

    folder = open_job_folder(out(bucket), StorageOptions(bucket.options))
    folder.lock.take()
    monkeypatch.setattr(StoreLock, "confirm", late)
    with pytest.raises(JobRunningError, match="has taken over"):
        folder.rewrite_journal({"ends": [[0, 5]]})
    folder.lock.release()
    assert tens(bucket) == TENS
    assert num_safe(bucket) == NUM_ROWS


def test_a_bucket_that_is_not_there(bucket: Bucket, calls: Path) -> None:
    with pytest.raises(WriteError, match="nowhere-at-all"):
        job(str(calls)).write_parquet("s3://nowhere-at-all/out", resume=True, storage_options=bucket.options)


# --- the answers of calls ---


def test_answers_are_there_on_another_machine(
    bucket: Bucket, calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = job(str(calls), cache=True).limit(NUM_ROWS)  # not row by row, so that only answers are kept
    break_rows(calls, 45)
    with pytest.raises(PenstockError, match="no luck with 45"):
        write(bucket, frame)
    mend(calls)
    asked = taken(calls)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    write(bucket, frame)
    assert tens(bucket) == TENS
    again = taken(calls)
    assert sum(asked.values()) + sum(again.values()) <= NUM_ROWS + 10  # those of the batch that failed
    assert set(again) == {str(a) for a in range(NUM_ROWS)} - (set(asked) - set(again))
    assert not list((tmp_path / "another machine").rglob("*.log")), "the store has it all"


def test_answers_survive_a_kill_and_two_machines(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key_of({"number": number}) for number in range(9)]

    def run(machine: str, numbers: range) -> int:
        """Open the ledger on a machine, add to it, and return how many of all there were."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        with ledger_of(bucket).open() as folder:
            ledger = open_ledger(folder)
            found = ledger.get(keys)
            assert all(value == key * 3 for key, value in found.items())
            for number in numbers:
                ledger.put({keys[number]: keys[number] * 3})
            ledger.close()
        return len(found)

    assert run("a", range(2)) == 0
    with monkeypatch.context() as unsent:
        unsent.setattr(StoreLedger, "_upload", lambda *_: None)  # as if killed before it was uploaded
        assert run("a", range(2, 4)) == 2
    assert run("b", range(4, 6)) == 2
    assert run("a", range(6, 7)) == 6
    assert run("b", range(7, 8)) == 7
    assert run("c", range(0)) == 8
    assert run("a", range(0)) == 8


def test_a_deleted_job_loses_its_answers(bucket: Bucket, tmp_path: Path) -> None:
    key = key_of({"number": 1})
    with ledger_of(bucket).open() as folder:
        ledger = open_ledger(folder)
        ledger.put({key: b"1"})
        ledger.close()
    bucket.store.delete(bucket.keys)
    with ledger_of(bucket).open() as folder:
        ledger = open_ledger(folder)
        assert not ledger.get([key])
        ledger.close()
    assert len(list((tmp_path / "cache" / "penstock" / "jobs").iterdir())) == 1


def test_a_dashboard_pauses_and_cancels_a_job(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves orders in the store, where the run looks for them."""
    monkeypatch.setattr(folder, "STORE_POLL_S", 0.01)
    monkeypatch.setattr(dashboard_job, "REREAD_S", 0.0)
    names = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "ENDPOINT_URL": "endpoint_url", "REGION": "region"}
    for name, option in names.items():
        monkeypatch.setenv(f"AWS_{name}", bucket.options[option])
    begun, release, ends = threading.Event(), threading.Event(), list[BaseException]()

    @ps.func(use_process=False, version="1")
    def wait(number: int) -> int:
        begun.set()
        release.wait()
        return number

    def run() -> None:
        try:
            write(bucket, ps.range(4).with_column("b", wait(col("id"))))
        except QueryCancelledError as exc:
            ends.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        begun.wait()
        board = dashboard_job.JobBoard([out(bucket)])
        board.control({"action": "pause"})
        while board.state({})["query"]["state"] != "pausing":  # the task that has begun goes on
            assert thread.is_alive()
        board.control({"action": "cancel"})
    finally:
        release.set()
        thread.join()
    assert len(ends) == 1
    assert board.state({})["query"]["state"] == "cancelled"
