"""Servers that queue, refuse with 503 or 429, or fail on single rows: each row is computed once, and none is lost.

The bounds on times and numbers leave room for a busy machine; ``test_pace.py`` has narrow ones, on a virtual clock.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import penstock as ps
from tests.plain_server import counts, plain_server


def answers(base_url: str, num_rows: int, **options: Any) -> list[str | None]:
    ps.set_provider("openai", base_url=base_url, api_key="x")
    df = ps.from_pydict({"text": [f"text {number}" for number in range(num_rows)]})
    found: list[str | None] = df.select(a=ps.prompt(ps.col("text"), model="m", **options)).to_pydict()["a"]
    return found


class Watch:
    """Looks at a server ten times a second: the requests that it holds, and its answers."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: list[tuple[float, dict[str, int]]] = []

    def _look(self) -> None:
        is_over = False
        while not is_over:  # the last look is after the last answer
            is_over = self._is_over.wait(0.1)
            self.seen.append((time.monotonic(), counts(self._base_url)))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def held(self, after_rows: int) -> list[int]:
        """Return the requests at the server at each look after it answered so many rows, fewest first."""
        return sorted(c["in_flight"] + c["waiting"] for _, c in self.seen if c["answered"] >= after_rows)

    def per_s(self, first: int, last: int) -> float:
        """Return the answers a second from row ``first`` to row ``last``."""
        (start, one), *_ = [each for each in self.seen if each[1]["answered"] >= first]
        (end, two), *_ = [each for each in self.seen if each[1]["answered"] >= last]
        return (two["answered"] - one["answered"]) / (end - start)


def test_a_server_that_queues_computes_each_row_once() -> None:
    with plain_server(latency=0.1, slots=4, queues=True) as base_url, Watch(base_url) as watch:
        found = answers(base_url, 600, timeout=4)
        seen = counts(base_url)

    assert found == [f"answer {number}" for number in range(600)]
    assert seen["requests"] == seen["answered"] == 600
    held = watch.held(after_rows=400)
    assert held[len(held) // 2] <= 6 * 4  # a busy machine delays answers, and then more are tried for a moment
    assert watch.per_s(50, 550) > 0.2 * 40  # of the capacity


@pytest.mark.parametrize("most_waiting", [1, 8])
def test_a_server_that_refuses_with_503_loses_no_row(most_waiting: int) -> None:
    server = plain_server(latency=0.1, slots=4, queues=True, most_waiting=most_waiting, refuse_status=503)
    with server as base_url:
        found = answers(base_url, 400, on_error="null", max_retries=1)
        seen = counts(base_url)

    assert found == [f"answer {number}" for number in range(400)]
    assert seen["requests"] <= 2 * 400


def test_slots_are_found_in_a_few_rounds() -> None:
    with plain_server(latency=0.4, slots=40) as base_url, Watch(base_url) as watch:
        answers(base_url, 1000)
        seen = counts(base_url)

    assert watch.per_s(300, 900) > 0.2 * 100  # of the capacity
    assert seen["refused"] < 0.2 * seen["requests"]
