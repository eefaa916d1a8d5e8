"""Ctrl-C on a terminal: one line with rows, calls and dollars, and the frames of the user."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.events.events import Event, QueryFinished
from tests.plain_server import plain_server
from tests.terminals import run_in_terminal

CLOSING = re.compile(r"✗ stopped after [\d.ms ]+: \d+ of 1,000 rows answered, \d+ calls?, [\d,]+ tokens, \$0\.\d+")
CONTINUE = "; run it again to continue"

SCRIPT = """import sys
import penstock as ps
def ask():
    df = ps.read_parquet(sys.argv[1]).with_column("a", ps.prompt(ps.col("text"), model="gpt-5-mini"))
    {verb}
ask()
"""


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table whose prompts take long: a server answers 16 at a time."""
    with plain_server(latency=0.2, slots=16, queues=True) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        ps.from_pydict({"text": [f"review {number}" for number in range(1000)]}).write_parquet(str(tmp_path / "in"))
        yield tmp_path / "in"


def interrupted(*command: str, cwd: Path, **options: Any) -> tuple[list[str], int]:
    """Run a command, press Ctrl-C when its first calls are answered; return the screen and the exit status."""
    press = {"tokens/s": lambda process: process.send_signal(signal.SIGINT)}
    screen, _, status = run_in_terminal([sys.executable, *command], 200, press, cwd=cwd, **options)
    return screen, status


@pytest.mark.parametrize(
    ("verb", "ending"),
    [
        ("df.collect()", ""),
        ("for row in df.iter_batches(): pass", ""),
        ('df.write_parquet("out")', ""),
        ('df.write_parquet("out", resume=True)', CONTINUE),
    ],
)
def test_a_script_shows_one_line_and_the_frames_of_the_user(verb: str, ending: str, reviews: Path) -> None:
    script = reviews.parent / "script.py"
    script.write_text(SCRIPT.format(verb=verb))
    (closing, *traceback), status = interrupted(str(script), str(reviews), cwd=reviews.parent)
    assert CLOSING.sub("", closing) == ending
    shown = [line.strip() for line in traceback if not set(line) <= set(" ^")]
    assert shown == [
        "Traceback (most recent call last):",
        f'File "{script}", line 6, in <module>',
        "ask()",
        f'File "{script}", line 5, in ask',
        verb,
        "KeyboardInterrupt",
    ]
    assert status == -signal.SIGINT


def test_an_interrupt_between_two_rows_leaves_the_line_too(reviews: Path) -> None:
    """The query does not see it: its reader is in the user's own code, in a variable of the module."""
    script = reviews.parent / "script.py"
    script.write_text("""import sys, time
import penstock as ps
from penstock.events.events import Event, QueryFinished
df = ps.read_parquet(sys.argv[1]).with_column("a", ps.prompt(ps.col("text"), model="gpt-5-mini"))
rows = df.iter_rows()
next(rows)
print("asleep", flush=True)
time.sleep(60)
""")
    seen: list[Any] = []

    def press_at_the_second(process: Any) -> None:
        """Press Ctrl-C when the reader sleeps and the display is drawn."""
        seen.append(process)
        if len(seen) == 2:
            process.send_signal(signal.SIGINT)

    press = dict.fromkeys(("asleep", "tokens/s"), press_at_the_second)
    screen, _, _ = run_in_terminal([sys.executable, str(script), str(reviews)], 200, press, cwd=reviews.parent)
    assert "KeyboardInterrupt" in screen
    assert CLOSING.sub("", screen[-1]) == ""


def test_a_handler_of_the_script_gets_the_interrupt(reviews: Path) -> None:
    script = reviews.parent / "script.py"
    verb = "try: df.collect()\n    except KeyboardInterrupt: print('my handler')"
    script.write_text(SCRIPT.format(verb=verb))
    (closing, handled), status = interrupted(str(script), str(reviews), cwd=reviews.parent)
    assert CLOSING.fullmatch(closing)
    assert (handled, status) == ("my handler", 0)


def test_the_command_line_shows_one_line(reviews: Path) -> None:
    prompt = ["-m", "penstock", "prompt", str(reviews), "-c", "text", "-m", "gpt-5-mini"]
    (*_, closing), status = interrupted(*prompt, cwd=reviews.parent)  # some rows may stand above it
    assert CLOSING.fullmatch(closing)
    assert status == 130
    (closing,), status = interrupted(*prompt, "-o", "out", "--resume", cwd=reviews.parent)
    assert CLOSING.sub("", closing) == CONTINUE
    assert status == 130


def test_a_script_of_the_command_line_shows_one_line(reviews: Path) -> None:
    script = reviews.parent / "script.py"
    script.write_text(SCRIPT.format(verb="df.collect()"))
    (closing,), status = interrupted("-m", "penstock", "run", str(script), str(reviews), cwd=reviews.parent)
    assert CLOSING.fullmatch(closing)
    assert status == 130


def test_without_a_display_the_line_comes_too(reviews: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PROGRESS", "0")
    command = [sys.executable, "-m", "penstock", "prompt", str(reviews), "-c", "text", "-m", "gpt-5-mini"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert CLOSING.fullmatch(process.stderr.read().strip())
        assert process.wait(60) == 130


def test_ctrl_c_in_the_reader_stops_the_query() -> None:
    """It may come while the program handles a row, outside of the executor."""

    class Ends:
        def on_event(self, event: Event) -> None:
            if isinstance(event, QueryFinished):
                ends.append(type(event.error))

    def read(error: type[BaseException] | None) -> None:
        with closing(ps.range(1000).iter_rows()) as rows:
            next(rows)
            if error is not None:
                raise error

    ends: list[type] = []
    subscriber = Ends()
    ps.attach_subscriber(subscriber)
    try:
        read(None)
        with pytest.raises(KeyboardInterrupt):
            read(KeyboardInterrupt)
    finally:
        ps.detach_subscriber(subscriber)
    assert ends == [type(None), KeyboardInterrupt]
