"""``on_error="log"``: the first failures of a kind in full, then their number, once a minute and at the end."""

from __future__ import annotations

import logging

import pytest

import penstock as ps
from penstock import col
from penstock.events.events import QueryFinished, QuerySampled, QueryStarted, RowError, RowsFailed, StageInfo
from penstock.observe.failure_lines import INTERVAL_S, NUM_FULL, FailureLines, FailureLog
from tests.plain_server import plain_server

NUM_ROWS = 2000


def error(row: int, error_type: str = "ValueError", message: str = "bad") -> RowError:
    return RowError("f", f'{{"a": {row}}}', error_type, message, "", row, "in.csv")


def failures(first: int, last: int, **given: str) -> list[RowError]:
    return [error(row, **given) for row in range(first, last)]


def test_the_first_of_a_kind_are_logged_in_full_and_the_rest_is_counted_each_minute() -> None:
    lines = FailureLines()
    assert lines.add("f", failures(0, 3), 0.0) == [
        f'f: row {row} of in.csv failed with ValueError: bad; its values: {{"a": {row}}}' for row in range(3)
    ]
    assert len(lines.add("f", failures(3, 10), 1.0)) == NUM_FULL - 3
    assert lines.due(2.0) == []
    (line,) = lines.due(1.0 + INTERVAL_S)
    assert line == "f: 5 more rows failed with ValueError in the last minute, the last with: bad; see errors()"
    assert lines.due(2.0 + INTERVAL_S) == []
    assert lines.add("f", failures(10, 422), 30.0 + INTERVAL_S) == []
    assert lines.due(2 * INTERVAL_S) == []
    (line,) = lines.due(1.0 + 2 * INTERVAL_S)
    assert line.startswith("f: 412 more rows failed")
    assert lines.rest() == []


def test_each_stage_and_error_class_is_a_kind_of_its_own() -> None:
    lines = FailureLines()
    for stage in ("f", "g"):
        for error_type in ("ValueError", "KeyError"):
            assert len(lines.add(stage, failures(0, 100, error_type=error_type), 0.0)) == NUM_FULL
    assert [line.split(" failed")[0] for line in lines.rest()] == ["f: 95 more rows"] * 2 + ["g: 95 more rows"] * 2


def test_a_minute_without_failures_has_no_line() -> None:
    lines = FailureLines()
    lines.add("f", failures(0, NUM_FULL), 0.0)
    assert [lines.due(at * INTERVAL_S) for at in range(1, 9)] == [[]] * 8
    lines.add("f", failures(0, 1), 8.5 * INTERVAL_S)
    assert lines.due(8.6 * INTERVAL_S) == []
    (line,) = lines.due(9 * INTERVAL_S)
    assert line.startswith("f: 1 more row failed")


def test_long_texts_are_cut_and_stay_on_one_line_without_secrets() -> None:
    message = "first\nsecond https://me:secret@host/ \x1b[31m" + "x" * 10_000
    (line,) = FailureLines().add("f", [error(0, message=message)], 0.0)
    assert len(line) < 700
    assert line.isprintable()
    assert "secret" not in line


def test_only_stages_that_log_are_logged_and_the_clock_decides(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = FailureLog({1}, lambda: now[0])
    log.on_event(QueryStarted((StageInfo(0, "quiet"), StageInfo(1, "loud")), 0.0))
    with caplog.at_level(logging.WARNING, logger="penstock.udf"):
        log.on_event(RowsFailed(0, tuple(failures(0, 50))))
        assert caplog.messages == []
        log.on_event(RowsFailed(1, tuple(failures(0, 50))))
        log.on_event(QuerySampled(0.0, (), 0, 0, 0.0))
        assert len(caplog.messages) == NUM_FULL
        now[0] = INTERVAL_S
        log.on_event(QuerySampled(0.0, (), 0, 0, 0.0))
        assert caplog.messages[-1].startswith("loud: 45 more rows failed with ValueError in the last minute")
        log.on_event(RowsFailed(1, tuple(failures(0, 7))))
        log.on_event(QueryFinished(None, 0.0))
    assert caplog.messages[-1] == "loud: 7 more rows failed with ValueError, the last with: bad; see errors()"
    assert len(caplog.messages) == NUM_FULL + 2


@pytest.mark.parametrize("use_process", [False, True])
def test_two_thousand_failures_of_a_function_are_six_lines(use_process: bool, caplog: pytest.LogCaptureFixture) -> None:
    @ps.func(on_error="log", max_errors=None, use_process=use_process)
    def fail(number: int) -> int:
        raise ValueError(f"{number} is bad")

    with caplog.at_level(logging.WARNING, logger="penstock"):
        df = ps.range(NUM_ROWS).select(fail(col("id"))).collect()
    assert df.errors().count_rows() == NUM_ROWS
    counted = [line for line in caplog.messages if "more row" in line]
    assert len(caplog.messages) == NUM_FULL + len(counted)
    assert sum(int(line.split()[2].replace(",", "")) for line in counted) == NUM_ROWS - NUM_FULL


def test_two_thousand_refused_prompts_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with plain_server(latency=0.01, bad_every=2) as url, caplog.at_level(logging.WARNING, logger="penstock"):
        ps.set_provider("openai", base_url=url, api_key="test")
        rows = ps.from_pydict({"text": [f"text {number}" for number in range(2 * NUM_ROWS)]})
        asked = ps.prompt(col("text"), model="gpt-5-mini", on_error="log", max_errors=None)
        df = rows.select(asked.alias("answer")).collect()
    assert df.errors().count_rows() == NUM_ROWS
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.udf"]
    full = [line for line in lines if "more row" not in line]
    assert len(full) == NUM_FULL
    assert all("failed with RequestRefusedError: openai (gpt-5-mini), 400: text" in line for line in full)
    counted = [int(line.split(" more row")[0].split()[-1].replace(",", "")) for line in lines if "more row" in line]
    assert sum(counted) == NUM_ROWS - NUM_FULL
