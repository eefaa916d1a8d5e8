"""A ledger in one process and in several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import penstock.cache.ledger.store as store
from penstock.cache.ledger import FileLedger, LayeredLedger, key_of, open_ledger
from penstock.errors import InvalidArgumentError, LedgerError
from penstock.protocols import Ledger


def keys_of(numbers: range) -> list[bytes]:
    return [key_of({"n": number}) for number in numbers]


def value_of(key: bytes) -> bytes:
    """Bytes that only this key has: short and long, those that compress and those that do not."""
    return key * (key[0] * 2) if key[1] % 2 else key[: key[2] % 17]


def fill(ledger: Ledger, keys: list[bytes]) -> dict[bytes, bytes]:
    values = {key: value_of(key) for key in keys}
    for key, value in values.items():
        ledger.put({key: value})
    return values


def test_a_value_is_there_at_once_and_after_opening_again(tmp_path: Path) -> None:
    ledger: Ledger = open_ledger(tmp_path / "new" / "ledger")
    values = fill(ledger, keys_of(range(500)))
    assert ledger.get(list(values)) == values
    ledger.flush()
    assert ledger.get(list(values)) == values
    ledger.close()
    ledger = open_ledger(tmp_path / "new" / "ledger")
    assert ledger.get([*values, key_of(b"another")]) == values
    assert ledger.get([]) == {}
    ledger.close()


@pytest.mark.parametrize("value", [b"", b"\0", b"x" * 1_000_000, os.urandom(100_000), bytes(range(256)) * 5])
def test_values_are_kept_as_they_are(tmp_path: Path, value: bytes) -> None:
    key = key_of(b"k")
    ledger = open_ledger(tmp_path)
    ledger.put({key: value})
    ledger.close()
    ledger = open_ledger(tmp_path)
    assert ledger.get([key]) == {key: value}
    ledger.close()


def test_the_first_value_of_a_key_stays(tmp_path: Path) -> None:
    key = key_of(b"k")
    with_waiting = open_ledger(tmp_path)
    with_waiting.put({key: b"first"})
    with_waiting.put({key: b"second"})
    with_waiting.flush()
    with_waiting.put({key: b"third"})
    with_waiting.flush()
    other = open_ledger(tmp_path)
    other.put({key: b"fourth"})
    other.close()
    assert with_waiting.get([key]) == {key: b"first"}
    with_waiting.close()
    again = open_ledger(tmp_path)
    assert again.get([key]) == {key: b"first"}
    again.close()


def test_what_another_writes_is_seen_once_it_is_flushed(tmp_path: Path) -> None:
    reader, writer = open_ledger(tmp_path), open_ledger(tmp_path)
    for first in range(0, 300, 100):
        values = fill(writer, keys_of(range(first, first + 100)))
        writer.flush()
        assert reader.get(list(values)) == values
    mine = fill(reader, keys_of(range(1000, 1100)))
    reader.flush()
    assert writer.get(list(mine)) == mine
    writer.close()
    assert reader.get(keys_of(range(300))) == {key: value_of(key) for key in keys_of(range(300))}
    reader.close()


def test_a_value_reaches_the_disk_by_itself(tmp_path: Path) -> None:
    """Another ledger sees only what is on disk."""
    key, writer, reader = key_of(b"k"), open_ledger(tmp_path), open_ledger(tmp_path)
    put_at = time.monotonic()
    writer.put({key: b"v"})
    while not reader.get([key]):
        assert time.monotonic() < put_at + 60, "promised within 0.1 s; a busy machine may take longer"
    writer.close()
    reader.close()


def test_a_file_that_nobody_writes_any_more_is_continued(tmp_path: Path) -> None:
    for round_number in range(5):
        ledger = open_ledger(tmp_path)
        fill(ledger, keys_of(range(round_number * 10, round_number * 10 + 10)))
        ledger.close()
    assert len(list(tmp_path.glob("*.log"))) == 1
    ledger = open_ledger(tmp_path)
    assert len(ledger.get(keys_of(range(50)))) == 50
    ledger.close()


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROLL_NBYTES", 10_000)
    ledger = open_ledger(tmp_path)
    for first in range(0, 100, 20):
        for key in keys_of(range(first, first + 20)):
            ledger.put({key: key * 60})
        ledger.flush()
    assert len(list(tmp_path.glob("*.log"))) > 2
    assert ledger.get(keys_of(range(100))) == {key: key * 60 for key in keys_of(range(100))}
    ledger.close()


def test_a_value_that_fills_the_file_while_another_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROLL_NBYTES", 1000)
    first, second = keys_of(range(2))
    ledger = open_ledger(tmp_path)
    sync = os.fdatasync

    def put_meanwhile(fd: int) -> None:
        monkeypatch.setattr(os, "fdatasync", sync)
        ledger.put({second: os.urandom(1000)})
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", put_meanwhile)
    ledger.put({first: b"1"})
    ledger.flush()
    ledger.flush()
    assert ledger.get([first, second]).keys() == {first, second}
    ledger.close()


def test_keys_of_many_commits(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    keys = keys_of(range(600))
    for first in range(0, 600, 30):
        fill(ledger, keys[first : first + 30])
        ledger.flush()
    assert ledger.get(keys[::-1]) == {key: value_of(key) for key in keys}
    assert ledger.get(keys_of(range(600, 700))) == {}
    ledger.close()


def test_threads_put_and_get_at_once(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    wrong: list[bytes] = []

    def work(first: int) -> None:
        keys = keys_of(range(first, first + 300))
        for key in keys:
            ledger.put({key: value_of(key)})
            if ledger.get([key]) != {key: value_of(key)}:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(n * 200,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    ledger.close()


WRITERS = """
import os, sys
from pathlib import Path
from penstock.cache.ledger import open_ledger
from tests.cache.test_store import fill, keys_of

pids = []
for number in range(8):
    if not (pid := os.fork()):
        ledger = open_ledger(sys.argv[1])
        own, shared = keys_of(range(number * 1000, number * 1000 + 1000)), keys_of(range(100_000, 100_200))
        for first in range(0, 1000, 100):
            values = fill(ledger, own[first : first + 100]) | fill(ledger, shared[first // 5 : first // 5 + 20])
            ledger.flush()
            assert ledger.get(list(values)) == values
        ledger.close()
        os._exit(0)
    pids.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
"""


def test_eight_processes_write_at_once(tmp_path: Path) -> None:
    watcher = open_ledger(tmp_path)
    subprocess.run([sys.executable, "-c", WRITERS, str(tmp_path)], check=True)
    keys = keys_of(range(8000)) + keys_of(range(100_000, 100_200))
    expected = {key: value_of(key) for key in keys}
    assert watcher.get(keys) == expected
    watcher.close()
    again = open_ledger(tmp_path)
    assert again.get(keys) == expected
    again.close()


def test_a_ledger_that_was_not_closed_is_written_when_the_process_ends(tmp_path: Path) -> None:
    code = "import sys; from penstock.cache.ledger import *; open_ledger(sys.argv[1]).put({key_of(b'k'): b'v'})"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    ledger = open_ledger(tmp_path)
    assert ledger.get([key_of(b"k")]) == {key_of(b"k"): b"v"}
    ledger.close()


FORKING = """
import os, signal, sys, time
from penstock.cache.ledger import key_of, open_ledger, store

store.SYNC_EVERY_S = 60
ledger = open_ledger(sys.argv[1])
ledger.put({key_of(1): b"one"})
if not (ending := os.fork()):
    sys.exit()  # with all that a process does at its end
os.waitpid(ending, 0)
if not (staying := os.fork()):
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(staying, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_neither_removes_nor_keeps_what_its_parent_had(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    assert run.returncode == -signal.SIGKILL
    try:
        ledger = open_ledger(tmp_path)
        assert ledger.get([key_of(1)]) == {key_of(1): b"one"}
        ledger.close()
    finally:
        os.kill(int(run.stdout), signal.SIGKILL)


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "a")
    with pytest.raises(InvalidArgumentError, match="keys of 16 bytes"):
        ledger.put({b"short": b"v"})
    with pytest.raises(InvalidArgumentError, match="keys of 16 bytes"):
        ledger.get([key_of(b"k"), b"short"])
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.put({key_of(b"k"): b"v"})
    with pytest.raises(LedgerError, match="is closed"):
        ledger.get([key_of(b"k")])
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LedgerError, match="cannot be opened"):
        open_ledger(tmp_path / "file")


def test_a_ledger_over_a_shared_one(tmp_path: Path) -> None:
    shared = open_ledger(tmp_path / "shared")
    known = fill(shared, keys_of(range(10)))
    shared.flush()
    both: Ledger = LayeredLedger(open_ledger(tmp_path / "own"), shared)
    new = fill(both, keys_of(range(10, 20)))
    assert both.get(keys_of(range(30))) == known | new
    both.close()
    for name in ("own", "shared"):  # what was found in the shared one is in the job's own too
        ledger: FileLedger = open_ledger(tmp_path / name)
        assert ledger.get(keys_of(range(30))) == known | new
        ledger.close()
