"""Jobs in real processes that are killed, run out of disk, lose their server: the output is exact, no call is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.testing import ModelServer, SeenRequest
from tests.faults.killed_jobs import NUM_ROWS, Lane, rows_of

KEPT_WITHIN_S = 1.0
"""An answer is on disk within 100 ms of its arrival. A machine that has much else to do may need longer."""

NUM_KILLS, NUM_LANES = 50, 2


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


def check_calls(requests: Iterable[SeenRequest], kills: Mapping[str, list[float]]) -> int:
    """Check that a call was only repeated if it was under way at a kill, and return how many were repeated."""
    by_text: dict[str, list[SeenRequest]] = defaultdict(list)
    for request in requests:
        by_text[asked_text(request)].append(request)
    num_repeated = 0
    for text, calls in by_text.items():
        for earlier, later in zip(calls, calls[1:], strict=False):
            # A request may arrive a little later than whoever sent it was killed.
            ends = [at for at in kills[text.partition("-")[0]] if earlier.arrived - 0.05 < at < later.arrived]
            assert ends, f"{text} was asked twice in one run"
            at_s = min(ends)
            is_under_way = earlier.ended is None or earlier.status == 0 or earlier.ended > at_s - KEPT_WITHIN_S
            assert is_under_way, f"{text} was answered {at_s - (earlier.ended or 0):.2f} s before the kill, and asked again"
            num_repeated += 1
    return num_repeated


def shouted(request: Any) -> str:
    return f"{request.text.upper()}!"


@pytest.mark.timeout(240)
def test_jobs_are_killed_at_random_instants(tmp_path: Path) -> None:
    with ModelServer(latency=0.02, answer=shouted) as server:
        lanes = [
            Lane(str(tmp_path / str(seed)), server.openai_url, seed, NUM_KILLS // NUM_LANES) for seed in range(NUM_LANES)
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
    kills: dict[str, list[float]] = defaultdict(list)
    for line in said:
        if "killed_at_s" in line:
            kills[line["job"]].append(line["killed_at_s"])
    assert sum(map(len, kills.values())) == NUM_KILLS
    for line in said:
        if "kind" in line:
            check_output(line["kind"], line["job"], f"{line['folder']}/out")
    num_repeated = check_calls(requests, kills)
    print(len(kills), "jobs", num_repeated, "repeated of", len(requests))
