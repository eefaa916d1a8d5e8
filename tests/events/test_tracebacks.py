"""The traceback of an error shows the user's code; the whole one is in the log and in the folder of a job."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import UdfError
from penstock.events.tracebacks import PACKAGE, TrimmedErrors


def parse(text: str) -> int:
    return int(text)


def numbers(*, use_process: bool) -> ps.DataFrame:
    @ps.func(use_process=use_process)
    def to_int(text: str) -> int:
        return parse(text)

    return ps.from_pydict({"t": ["1", "x"]}).select(to_int(ps.col("t")))


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_frames_of_the_engine_are_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock"), pytest.raises(UdfError) as caught:
        numbers(use_process=False).collect()
    text = shown(caught.value)
    assert "in to_int\n    return parse(text)" in text
    assert "in parse\n    return int(text)" in text
    assert text.count(PACKAGE) <= 2  # the verbs that were called
    assert (
        text.splitlines()[-1]
        == 'To continue with null for such rows, set on_error="null"; df.errors() then lists them.'
    )
    assert "executor.py" not in text
    assert "executor.py" in caplog.text


def test_a_job_keeps_the_whole_traceback_also_of_a_worker_process(tmp_path: Path) -> None:
    with pytest.raises(UdfError) as caught:
        numbers(use_process=True).write_parquet(str(tmp_path / "out"), resume=True)
    text = shown(caught.value)
    assert "In the worker process:\nTraceback" in text
    assert "in to_int\n    return parse(text)" in text
    assert PACKAGE not in text
    assert "The whole traceback is in _penstock_job/error.txt there." in text.splitlines()[-1]
    whole = (tmp_path / "out/_penstock_job/error.txt").read_text()
    assert "executor.py" in whole
    assert "In the worker process:\nTraceback" in whole
    assert "worker.py" in whole


def test_a_bug_keeps_all_frames() -> None:
    with pytest.raises(AttributeError) as bug, TrimmedErrors():
        ps.DataFrame(None)  # type: ignore[arg-type]
    assert PACKAGE in shown(bug.value)
    with pytest.raises(ps.errors.InvalidArgumentError) as expected, TrimmedErrors():
        ps.set_config(num_threads=-1)
    assert PACKAGE not in shown(expected.value)


def test_a_mistake_in_a_plan_shows_the_line_of_the_user() -> None:
    script = "import penstock as ps; ps.from_pydict({'text': ['a']}).select('txet')"
    printed = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True).stderr
    assert printed.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<string>", line 1, in <module>',
        "penstock.errors.ColumnNotFoundError: Column 'txet' not found; available: text. Did you mean 'text'?",
    ]


@pytest.mark.parametrize(
    ("owner", "name"), [(ps.from_pydict({"a": [1]}), "wheer"), (ps.col("a"), "lenght"), (ps.functions, "uper")]
)
def test_an_unknown_attribute_has_one_suggestion(owner: object, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(owner, name)
    sys.__excepthook__(AttributeError, raised.value, None)
    assert capsys.readouterr().err.count("Did you mean") == 1
