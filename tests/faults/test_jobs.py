"""Jobs in real processes that are killed, run out of disk, lose their server: the output is exact, no call is lost."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.testing import ModelServer, SeenRequest, faults
from tests.faults import one_job
from tests.faults.killed_jobs import NUM_ROWS, Lane, make_inputs, rows_of
from tests.forked import ForkedProcess
from tests.jobs.helpers import num_safe, staged, wait_until

MOST_UNDER_WAY = 4
"""Calls that a run makes at once, and so the most that a kill may cost."""

NUM_KILLS, NUM_LANES = 20, 2


def expected_rows(kind: str, job: str) -> list[tuple[str, ...]]:
    rows = [(text, number) for number, text in enumerate(rows_of(job))]
    match kind:
        case "write_lots":
            return sorted((text,) for text, number in rows for _ in range(number % 3))
        case "write_json":
            return sorted((text,) for text, number in rows if number % 2 == 0)
        case "write_limited":
            return []
        case _:
            return sorted((text,) for text, _ in rows)


def check_output(kind: str, job: str, out: str) -> None:
    found = (ps.read_json(out) if kind == "write_json" else ps.read_parquet(out)).to_pydict()
    assert [answer.upper() for answer in found["answer"]] == [text.upper() + "!" for text in found["text"]]
    texts = sorted((text,) for text in found["text"])
    if kind == "write_limited":
        assert len(set(texts)) == len(texts) == NUM_ROWS - 1
    else:
        assert texts == expected_rows(kind, job)
    if kind == "write_lots":
        assert set(Counter(zip(found["text"], found["copy"], strict=True)).values()) == {1}


def asked_text(request: SeenRequest) -> str:
    body = request.body
    message = body.get("input") or body["messages"]
    return str(message if isinstance(message, str) else _text_of(message[-1]["content"]))


def _text_of(content: Any) -> Any:
    return content if isinstance(content, str) else content[0]["text"]


def check_calls(requests: Iterable[SeenRequest], kills: Iterable[str]) -> None:
    """Check that no more calls of a run were made again than were under way when it was killed."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for request in requests:
        by_text[asked_text(request)].append(request.headers["authorization"].removeprefix("Bearer "))
    for text, runs in by_text.items():
        assert len(set(runs)) == len(runs), f"{text} was asked twice in one run"
    num_repeated = Counter(run for runs in by_text.values() for run in runs[:-1])
    assert num_repeated.keys() <= set(kills)
    assert max(num_repeated.values(), default=0) <= MOST_UNDER_WAY, num_repeated


def shouted(request: Any) -> str:
    return f"{request.text.upper()}!"


def test_jobs_are_killed_at_random_instants(tmp_path: Path) -> None:
    with ModelServer(latency=0.02, answer=shouted) as server:
        lanes = [
            Lane(str(tmp_path / str(seed)), server.openai_url, seed, NUM_KILLS // NUM_LANES)
            for seed in range(NUM_LANES)
        ]
        arguments = [[sys.executable, "-m", "tests.faults.killed_jobs", json.dumps(asdict(lane))] for lane in lanes]
        processes = [
            subprocess.Popen(argument, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for argument in arguments
        ]
        outputs = [process.communicate(timeout=220) for process in processes]
        requests = server.requests
    for process, (_, problems) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, problems
        assert problems == ""
    said = [json.loads(line) for output, _ in outputs for line in output.splitlines()]
    kills = [line["run"] for line in said if "run" in line]
    assert len(kills) == NUM_KILLS
    for line in said:
        if "kind" in line:
            check_output(line["kind"], line["job"], f"{line['folder']}/out")
    check_calls(requests, kills)


# --- one run at a time, in processes of their own ---


class Runs:
    """The runs of one job, each a process."""

    def __init__(self, folder: Path, kind: str, url: str) -> None:
        self.folder, self.kind, self.url = folder, kind, url
        self.out, self.job = folder / "out", folder / "out" / "_penstock_job"
        make_inputs(folder / "in", "job")

    def start(self, **options: Any) -> ForkedProcess:
        return ForkedProcess(one_job.main, kind=self.kind, folder=str(self.folder), url=self.url, **options)

    def run(self, **options: Any) -> tuple[int, str]:
        """Run to its end, and return the exit status and the text on stderr."""
        return self.start(**options).ended()

    def run_with_path(self, path: str) -> tuple[int, str]:
        """Run in a new interpreter that looks for modules in ``path`` first."""
        given = {"kind": self.kind, "folder": str(self.folder), "url": self.url}
        run = subprocess.run(
            [sys.executable, "-m", "tests.faults.one_job", json.dumps(given)],
            env=os.environ | {"PYTHONPATH": path + os.pathsep + os.environ.get("PYTHONPATH", "")},
            capture_output=True, text=True,
        )  # fmt: skip
        return run.returncode, run.stderr

    def run_and_kill(self, server: ModelServer, num_safe_rows: int = 1) -> None:
        """Kill it when it has asked about three quarters of the rows, and so many are safe."""
        with silent_after(server, NUM_ROWS * 3 // 4):
            process = self.start()
            wait_until(
                lambda: (
                    process.poll() is not None
                    or (server.num_requests > NUM_ROWS * 3 // 4 and num_safe(self.out) >= num_safe_rows)
                )
            )
            process.kill()
            status, said = process.ended()
        assert status == -signal.SIGKILL, said


@contextmanager
def silent_after(server: ModelServer, num_answers: int) -> Iterator[None]:
    """Have the server answer no more than so many requests, and so keep a job from its end."""
    server.change(faults=[faults.Hang(at=range(num_answers + 1, 10**9))])
    yield
    server.change(faults=[])


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    model_server.change(latency=0.01, answer=shouted)
    return model_server


@pytest.fixture
def mortal_server() -> Iterator[ModelServer]:
    """One of its own for a test that lets it die."""
    with ModelServer(latency=0.01, answer=shouted) as server:
        yield server


def texts_asked(server: ModelServer) -> Counter[str]:
    return Counter(map(asked_text, server.requests))


def test_a_second_run_is_refused_and_the_first_is_unharmed(tmp_path: Path, server: ModelServer) -> None:
    runs = Runs(tmp_path, "write_parquet", server.openai_url)
    server.change(latency=0.2)
    first = runs.start()
    wait_until(lambda: server.num_requests > 0 or first.poll() is not None)
    status, said = runs.run()
    assert status == 1
    assert f"JobRunningError: Another run is at work on the job in {str(runs.out)!r} (process {first.pid} on" in said
    assert first.poll() is None
    server.change(latency=0.0)
    status, said = first.ended()
    assert status == 0, said
    check_output("write_parquet", "job", str(runs.out))
    assert set(texts_asked(server).values()) == {1}


@pytest.mark.parametrize(
    ("kind", "max_file_nbytes"), [("large_file", 250_000), ("small_files", 4_000)], ids=["output", "journal"]
)
def test_a_full_disk_ends_a_job_that_goes_on_when_there_is_room(
    tmp_path: Path, server: ModelServer, kind: str, max_file_nbytes: int
) -> None:
    runs = Runs(tmp_path, kind, server.openai_url)
    status, said = runs.run(max_file_nbytes=max_file_nbytes)
    assert status == 1
    assert re.search(rf"WriteError: Cannot write to {str(runs.out)!r}.*File too large", said), said
    assert f"The job in {str(runs.out)!r} keeps what is done: run it again with resume=True" in said
    status, said = runs.run()
    assert status == 0, said
    found = ps.read_parquet(str(runs.out)).to_pydict()
    assert sorted(found["text"]) == sorted(rows_of("job"))
    if kind == "large_file":
        assert set(texts_asked(server)) == set(rows_of("job"))
        assert sum((texts_asked(server) - Counter(rows_of("job"))).values()) <= server.max_in_flight


def test_a_full_disk_under_the_ledger_stops_the_calls(tmp_path: Path, server: ModelServer) -> None:
    """An answer that cannot be kept is paid for in vain, so no further calls are made, whatever on_error says."""
    server.change(answer=lambda request: random.Random(request.text).randbytes(1000).hex(), latency=0.05)
    runs = Runs(tmp_path, "large_ledger", server.openai_url)
    status, said = runs.run(max_file_nbytes=100_000)
    assert status == 1
    assert re.search(
        rf"LedgerError: The ledger '{re.escape(str(runs.job / 'ledger'))}' cannot be written: .*large", said
    )
    assert f"The job in {str(runs.out)!r} keeps what is done: run it again with resume=True" in said
    num_asked = server.num_requests
    assert num_asked < NUM_ROWS
    server.change(latency=0)
    status, said = runs.run()
    assert status == 0
    assert server.num_requests - NUM_ROWS < num_asked / 2, "the answers that were lost"
    found = ps.read_parquet(str(runs.out)).to_pydict()
    assert sorted(found["text"]) == sorted(rows_of("job"))
    assert set(found["answer"]) == {2000}


def test_decisions_of_a_killed_job_are_asked_once(tmp_path: Path, server: ModelServer) -> None:
    """Only calls that were under way are repeated, and each row is one request for both columns."""
    server.change(latency=0.03, answer=None)
    runs = Runs(tmp_path, "decisions", server.openai_url)
    runs.run_and_kill(server)
    status, said = runs.run()
    assert status == 0, said
    asked = texts_asked(server)
    assert set(asked) == set(rows_of("job"))
    assert asked.total() <= NUM_ROWS + MOST_UNDER_WAY
    assert {len(request.body["questions"]) for request in server.requests} == {2}
    found = ps.read_parquet(str(runs.out)).to_pydict()
    assert sorted(found["text"]) == sorted(rows_of("job"))
    assert all(answer["loud"]["value"] is not None for answer in found["loud"])


def test_a_staged_file_is_deleted_and_the_ledger_is_damaged(tmp_path: Path, server: ModelServer) -> None:
    server.change(latency=0.03)
    runs = Runs(tmp_path, "write_parquet", server.openai_url)
    runs.run_and_kill(server, NUM_ROWS // 4)
    deleted = staged(runs.out, "*.parquet")[:2]
    lost = [text for path in deleted for text in pq.read_table(path).column("text").to_pylist()]
    for path in deleted:
        path.unlink()
    (log,) = (runs.job / "ledger").glob("*.log")
    os.truncate(log, log.stat().st_size - 20)
    with log.open("ab") as file:
        file.write(os.urandom(5000))
    before = texts_asked(server)
    server.clear()
    status, said = runs.run()
    assert status == 0, said
    check_output("write_parquet", "job", str(runs.out))
    again = before & texts_asked(server)
    assert len(again) < NUM_ROWS // 3, "the torn record, what was under way, and what was answered just before"
    assert len(set(lost) & set(again)) <= 1, "rows that must be made again have their answers"


def test_a_server_dies_and_comes_back(tmp_path: Path, mortal_server: ModelServer) -> None:
    server = mortal_server
    runs = Runs(tmp_path, "write_parquet", server.openai_url)
    with silent_after(server, NUM_ROWS // 2):
        process = runs.start()
        wait_until(lambda: server.counts.completed >= NUM_ROWS // 3)
        server.die()
        wait_until(lambda: server.counts.in_flight == 0)
    server.come_back()
    status, said = process.ended()
    assert status == 0, said
    check_output("write_parquet", "job", str(runs.out))
    completed = Counter(asked_text(request) for request in server.requests if request.status == 200)
    assert set(completed.values()) == {1}


def test_a_server_that_stays_away_ends_a_job_that_goes_on_when_it_is_back(
    tmp_path: Path, mortal_server: ModelServer
) -> None:
    server = mortal_server
    runs = Runs(tmp_path, "impatient", server.openai_url)
    with silent_after(server, NUM_ROWS // 2):
        process = runs.start()
        wait_until(lambda: server.counts.completed >= NUM_ROWS // 3 or process.poll() is not None)
        server.die()
        status, said = process.ended()
    assert status == 1
    assert f"The job in {str(runs.out)!r} keeps what is done" in said
    server.come_back()
    status, said = runs.run()
    assert status == 0, said
    check_output("write_parquet", "job", str(runs.out))
    completed = Counter(asked_text(request) for request in server.requests if request.status == 200)
    assert set(completed.values()) == {1}, "what was answered was flushed when the run failed"


CLOCK = """
import time

def _shift(name, by):
    true = getattr(time, name)
    setattr(time, name, lambda: true() - by)

_shift("time", DAYS * 86400)
_shift("time_ns", DAYS * 86400 * 10**9)
for _name in ("gmtime", "localtime"):
    _true = getattr(time, _name)
    setattr(time, _name, lambda seconds=None, true=_true: true(time.time() if seconds is None else seconds))
_strftime = time.strftime
time.strftime = lambda text, moment=None: _strftime(text, time.localtime() if moment is None else moment)
"""


def test_the_clock_goes_backwards(tmp_path: Path, server: ModelServer) -> None:
    server.change(latency=0.03)
    runs = Runs(tmp_path, "write_lots", server.openai_url)
    runs.run_and_kill(server)
    names = {path.name for path in staged(runs.out, "*.parquet")}
    before = texts_asked(server)
    server.clear()
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK.replace("DAYS", "400"))
    status, said = runs.run_with_path(str(tmp_path / "clock"))
    assert status == 0, said
    check_output("write_lots", "job", str(runs.out))
    assert len(before & texts_asked(server)) < NUM_ROWS // 3
    made_later = {path.name for path in runs.out.glob("*.parquet")} - names
    assert made_later
    assert max(made_later) < min(names), "the clock was not set back"
    status, said = runs.run()
    assert status == 0
    assert "Nothing was done" in said
