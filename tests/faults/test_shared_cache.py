"""Two processes with one ``cache_dir`` and the same prompts ask for each of them once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.cache.shared_calls import FILE
from tests.faults.ended_query import NUM_ROWS
from tests.faults.test_ended_queries import LONG_S, change, started, wait_until
from tests.plain_server import counts, plain_server


@pytest.mark.parametrize("spread", [0.0, 0.9])
def test_each_prompt_is_asked_about_once(tmp_path: Path, spread: float) -> None:
    with plain_server(latency=0.3, spread=spread) as url, ExitStack() as stack:
        processes = [stack.enter_context(started("collect", url, tmp_path)) for _ in range(2)]
        for process in processes:
            _, printed = process.communicate()
            assert process.returncode == 0, printed
        assert NUM_ROWS <= counts(url)["requests"] <= 1.1 * NUM_ROWS


def test_a_killed_process_costs_its_calls_in_flight(tmp_path: Path) -> None:
    with plain_server(latency=LONG_S) as url, started("collect", url, tmp_path) as first:
        wait_until(lambda: counts(url)["in_flight"] >= 6)
        file = next(tmp_path.rglob(FILE))
        with started("collect", url, tmp_path) as second:
            nbytes = file.stat().st_size
            wait_until(lambda: file.stat().st_size >= nbytes + 32 * NUM_ROWS // 2)
            first.kill()
            first.wait()
            num_lost = counts(url)["requests"]
            change(url, latency=0)
            _, printed = second.communicate()
        assert second.returncode == 0, printed
        assert counts(url)["requests"] <= num_lost + NUM_ROWS
