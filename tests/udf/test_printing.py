"""What functions print in worker processes is seen where the user's own prints are: nothing of it is lost."""

# ruff: noqa: T201

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import WorkerDiedError
from tests.terminals import obeyed
from tests.udf.script import run_script

pytestmark = pytest.mark.one_machine  # Ray passes on what its workers print
away = ps.func(use_process=True, max_concurrency=1)


@away
def greet(x: int) -> int:
    print(f"row {x}")
    print(f"warning {x}", file=sys.stderr)
    return x


def num_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_redirected_output_has_what_workers_print() -> None:
    ps.range(1).select(greet(col("id"))).collect()  # what is opened once is open now
    num_before, threads_before = num_fds(), threading.active_count()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        print("before")
        ps.range(3).select(greet(col("id"))).collect()
        print("after")
    assert out.getvalue().splitlines() == ["before", "row 0", "row 1", "row 2", "after"]
    assert err.getvalue().splitlines() == ["warning 0", "warning 1", "warning 2"]
    assert num_fds() <= num_before
    assert threading.active_count() <= threads_before


def test_pytest_sees_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    ps.range(2).map_batches(lambda batch: print("batch") or batch, use_process=True).collect()
    assert capsys.readouterr().out == "batch\n"


def test_a_file_keeps_the_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, contextlib.redirect_stdout(log):
        print("before")
        ps.range(1).select(greet(col("id"))).collect()
        print("after")
    assert (tmp_path / "log").read_text().splitlines() == ["before", "row 0", "after"]


def test_fifty_megabytes_block_nobody() -> None:
    @ps.func(use_process=True, max_concurrency=2)
    def chatty(x: int) -> int:
        for _ in range(1250):
            sys.stdout.write("o" * 9_999 + "\n")
            sys.stderr.write("e" * 9_999 + "\n")
        return x

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ps.range(2).into_batches(1).select(chatty(col("id"))).collect()
    assert out.getvalue() == ("o" * 9_999 + "\n") * 2500
    assert err.getvalue() == ("e" * 9_999 + "\n") * 2500


@pytest.mark.parametrize("death", ["exit", "kill"])
def test_what_a_worker_printed_before_it_died_is_above(death: str) -> None:
    def die(batch: dict[str, Any]) -> None:
        print("last words, 1\nlast words, 2")
        if death == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)

    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(WorkerDiedError, match="anything it printed is above"):
        ps.range(1).map_batches(die, use_process=True).collect()
    seen = out.getvalue().splitlines()
    assert seen[:2] == ["last words, 1", "last words, 2"]
    assert len(set(seen)) == 2  # again by the worker that replaced it


def test_a_query_that_is_stopped_leaves_nothing_behind() -> None:
    ps.range(1).select(greet(col("id"))).collect()
    num_before, threads_before = num_fds(), threading.active_count()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        batches = ps.range(100).into_batches(1).select(greet(col("id"))).iter_partitions()
        next(iter(batches))
        batches.close()  # type: ignore[attr-defined]
    assert num_fds() <= num_before
    assert threading.active_count() <= threads_before


def test_a_child_that_outlives_its_worker_does_not_hold_up_the_query(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    @away
    def leave_a_child(x: int) -> int:
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        child.returncode = 0  # or Python warns that it still runs
        pid_file.write_text(str(child.pid))
        print("started")
        return x

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        ps.range(1).select(leave_a_child(col("id"))).collect()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert out.getvalue() == "started\n"


def test_a_stream_that_cannot_be_written_stops_nothing() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("nobody reads")

    with contextlib.redirect_stdout(Broken()), contextlib.redirect_stderr(io.StringIO()):
        assert ps.range(2).select(greet(col("id"))).to_pydict() == {"id": [0, 1]}


def test_lines_are_whole_and_bad_bytes_replaced() -> None:
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    @away
    def write_bytes(x: int) -> int:
        for data in (b"one", b" two\nthr", b"ee\xc3", b"\xa9\n\xff\n", b"10%\r", b"x" * 100_000, b"end\xc3"):
            os.write(1, data)
        return x

    with contextlib.redirect_stdout(Stream()):
        ps.range(1).select(write_bytes(col("id"))).collect()
    assert written == ["one two\n", "threeé\n", "\ufffd\n", "10%\r", "x" * 2**16, "x" * (100_000 - 2**16) + "end\ufffd"]


NOTEBOOK = """
import io, sys
import penstock as ps

class CellOutput(io.TextIOBase):  # as ipykernel has it: not the file beneath, though fileno() tells of one
    def __init__(self):
        self.texts = []
    def write(self, text):
        self.texts.append(text)
        return len(text)
    def fileno(self):
        return 1

real, sys.stdout = sys.stdout, CellOutput()
ps.range(2).map(lambda row: print("in a cell", row) or row, use_process=True).collect()
cell, sys.stdout = sys.stdout, real
print(repr("".join(cell.texts)))
"""


def test_a_cell_of_a_notebook_shows_it(tmp_path: Path) -> None:
    done = run_script(tmp_path, NOTEBOOK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == repr("in a cell {'id': 0}\nin a cell {'id': 1}\n") + "\n"


TERMINAL = """
import os, sys, time
import penstock as ps

def slow(row):
    print("printed", row["id"])
    while not os.path.exists(GATE):
        time.sleep(0.01)
    print("warned", file=sys.stderr)
    return row

GATE = sys.argv[1]
ps.range(1).map(slow, use_process=USE_PROCESS).collect()
"""


@pytest.mark.parametrize("use_process", [True, False])
def test_on_a_terminal_it_stays_above_the_progress(tmp_path: Path, use_process: bool) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "main.py").write_text(TERMINAL.replace("USE_PROCESS", str(use_process)))
    controller, terminal = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(gate)],
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(terminal)
    received = b""
    try:
        with contextlib.suppress(OSError):
            while data := os.read(controller, 1 << 16):
                received += data
                if b"printed" in received and received.count(b"1.") > 1:  # a second has passed: the display is drawn
                    gate.touch()
        assert command.wait(60) == 0, received
    finally:
        command.kill()
        command.wait()
        os.close(controller)
    *printed, summary = obeyed(received.decode())
    assert printed == ["printed 0", "warned"]
    assert summary.startswith("✓ 1 row in ")


def test_worker_warnings_are_seen() -> None:
    @away
    def warn(x: int) -> int:
        warnings.warn("look here", stacklevel=1)
        return x

    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        ps.range(1).select(warn(col("id"))).collect()
    assert "UserWarning: look here" in err.getvalue()
