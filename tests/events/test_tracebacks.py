"""The traceback of an error shows the user's code; the whole one is in the log and in the folder of a job."""

from __future__ import annotations

import logging
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
