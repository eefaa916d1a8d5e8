"""Of several processes with the same call, the first makes it, and the others take its answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cache import shared_calls
from penstock.cache.shared_calls import SharedCalls
from penstock.events.call_gate import CallGate, make_current

KEY, OTHER = b"k" * 16, b"o" * 16

BEGIN = """
import asyncio, sys, pathlib
from penstock.cache.shared_calls import SharedCalls

async def begin():
    calls = SharedCalls(pathlib.Path(sys.argv[1]), lambda keys: {})
    assert await calls.begin(b"k" * 16) is None
    print("begun", flush=True)
    await asyncio.Event().wait()

asyncio.run(begin())
"""

Open = Callable[[], SharedCalls]
Test = Callable[[Open, dict[bytes, bytes]], Coroutine[Any, Any, None]]


def run(path: Path, work: Test) -> None:
    """Run a test with a function that opens the calls of another model each time, and with the ledger of all."""
    ledger, opened = dict[bytes, bytes](), list[SharedCalls]()

    def look_up(keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: ledger[key] for key in keys if key in ledger}

    def open_calls() -> SharedCalls:
        opened.append(SharedCalls(path, look_up))
        return opened[-1]

    async def whole() -> None:
        async with asyncio.timeout(60):
            await work(open_calls, ledger)
            for each in opened:
                await each.close()

    asyncio.run(whole())


async def waiting(calls: SharedCalls, key: bytes = KEY) -> asyncio.Task[bytes | None]:
    """Begin a call that another one makes."""
    task = asyncio.create_task(calls.begin(key))
    for _ in range(3):
        await asyncio.sleep(shared_calls.LOOK_EVERY_S)
    assert not task.done()
    return task


def test_the_second_takes_the_answer_of_the_first(tmp_path: Path) -> None:
    async def work(open_calls: Open, ledger: dict[bytes, bytes]) -> None:
        first, second, third = open_calls(), open_calls(), open_calls()
        assert await first.begin(KEY) is None
        assert await second.begin(OTHER) is None
        waits = [await waiting(second), await waiting(third)]
        ledger[KEY] = b"answer"
        first.end(KEY, is_stored=True)
        assert await asyncio.gather(*waits) == [b"answer"] * 2
        assert await open_calls().begin(KEY) == b"answer"

    run(tmp_path / "calls", work)


def test_after_a_failure_the_next_one_makes_the_call(tmp_path: Path) -> None:
    async def work(open_calls: Open, ledger: dict[bytes, bytes]) -> None:
        first, second, third = open_calls(), open_calls(), open_calls()
        assert await first.begin(KEY) is None
        waits = [await waiting(second), await waiting(third)]
        first.end(KEY, is_stored=False)
        assert await waits[0] is None
        assert not waits[1].done()
        second.end(KEY, is_stored=False)
        assert await waits[1] is None

    run(tmp_path / "calls", work)


def test_no_one_waits_for_a_dead_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_calls, "SILENT_AFTER_S", 10_000.0)

    async def work(open_calls: Open, ledger: dict[bytes, bytes]) -> None:
        calls, path = open_calls(), str(tmp_path / "calls")
        with subprocess.Popen([sys.executable, "-c", BEGIN, path], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            wait = await waiting(calls)
            process.kill()
        assert await wait is None

    run(tmp_path / "calls", work)


def test_no_one_waits_for_a_paused_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_calls, "ALIVE_EVERY_S", 0.1)
    monkeypatch.setattr(shared_calls, "SILENT_AFTER_S", 2.0)

    async def work(open_calls: Open, ledger: dict[bytes, bytes]) -> None:
        gate = CallGate()
        make_current(gate)
        first = open_calls()
        make_current(CallGate())
        second = open_calls()
        assert await first.begin(KEY) is None
        wait = await waiting(second)
        gate.set_open(False)
        assert await wait is None

    run(tmp_path / "calls", work)


def test_the_file_is_emptied_by_a_process_that_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_calls, "MAX_NBYTES", 10_000)
    monkeypatch.setattr(shared_calls, "ALIVE_EVERY_S", 0.0)
    path = tmp_path / "calls"

    async def work(open_calls: Open, ledger: dict[bytes, bytes]) -> None:
        calls = open_calls()
        for number in range(400):
            await calls.begin(number.to_bytes(16, "little"))
        assert os.path.getsize(path) > 10_000
        while os.path.getsize(path) > 10_000:
            await asyncio.sleep(0.01)
        other = open_calls()
        assert await other.begin(KEY) is None
        await waiting(calls)

    run(path, work)
