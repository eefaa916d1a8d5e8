"""Tails: values survive a kill before they are committed, and are cleared afterwards."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cache.ledger import key_of, maintenance as upkeep, open_ledger
from penstock.cache.ledger.segment import Segment
from penstock.cache.ledger.tail import Tail, abandoned_values

KEYS = [key_of({"n": number}) for number in range(8)]
VALUES = {key: key * (number + 1) for number, key in enumerate(KEYS)}


def abandoned(folder: Path, *keys: bytes) -> Path:
    """Leave a tail as a killed process does, without a lock. Return the file that was written."""
    tail = Tail(folder)
    for key in keys:
        tail.write(key, VALUES[key])
    tail.close(is_committed=False)
    return next(path for path in folder.glob("*.tail") if keys[0] in path.read_bytes())


def test_what_a_killed_process_had_put_is_found_and_committed(tmp_path: Path) -> None:
    abandoned(tmp_path, *KEYS[:3])
    abandoned(tmp_path, *KEYS[2:6])
    for _ in range(2):
        ledger = open_ledger(tmp_path)
        assert ledger.get(KEYS) == {key: VALUES[key] for key in KEYS[:6]}
        ledger.close()
        assert not list(tmp_path.glob("*.tail"))
    assert upkeep.stats(tmp_path).num_records == 6


def test_a_value_that_was_committed_before_the_kill_is_kept_once(tmp_path: Path) -> None:
    with_log = open_ledger(tmp_path)
    with_log.put(KEYS[0], VALUES[KEYS[0]])
    with_log.close()
    abandoned(tmp_path, *KEYS[:2])
    open_ledger(tmp_path).close()
    assert upkeep.stats(tmp_path).num_records == 2


@pytest.mark.parametrize("part", ["key", "length", "value"])
def test_what_lies_before_a_damaged_record_is_kept(tmp_path: Path, part: str) -> None:
    path = abandoned(tmp_path, *KEYS)
    content = bytearray(path.read_bytes())
    at = content.index(KEYS[5]) + {"key": 3, "length": 16, "value": 30}[part]
    content[at] ^= 1
    path.write_bytes(content)
    with abandoned_values(tmp_path) as left:
        assert left.values == {key: VALUES[key] for key in KEYS[:5]}


def test_a_record_that_was_half_written_is_none(tmp_path: Path) -> None:
    path = abandoned(tmp_path, *KEYS)
    content = bytearray(path.read_bytes())
    begin = content.index(KEYS[7]) + struct.calcsize("<16sII")
    content[begin + 40 :] = bytes(len(content) - begin - 40)
    path.write_bytes(content)
    with abandoned_values(tmp_path) as left:
        assert left.values == {key: VALUES[key] for key in KEYS[:7]}


def test_what_was_there_before_a_file_was_emptied_does_not_come_back(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    same_size = bytes(100)
    for key in KEYS[:4]:
        tail.write(key, same_size)
    for _ in range(2):  # each file has been emptied then
        tail.switch()
        tail.clear_committed()
    tail.write(KEYS[5], same_size)
    tail.close(is_committed=False)
    with abandoned_values(tmp_path) as left:
        assert left.values == {KEYS[5]: same_size}


def test_it_grows_with_what_is_put(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    values = {key: bytes([number]) * 700_000 for number, key in enumerate(KEYS)}
    for key, value in values.items():
        tail.write(key, value)
    tail.close(is_committed=False)
    with abandoned_values(tmp_path) as left:
        assert left.values == values


def test_a_living_process_keeps_its_tail(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    tail.write(KEYS[0], VALUES[KEYS[0]])
    with abandoned_values(tmp_path) as left:
        assert left.values == {}
    assert len(list(tmp_path.glob("*.tail"))) == 2
    tail.close(is_committed=True)
    assert list(tmp_path.iterdir()) == []


def test_a_commit_empties_what_it_has_written(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    tail.write(KEYS[0], VALUES[KEYS[0]])
    tail.switch()
    tail.write(KEYS[1], VALUES[KEYS[1]])  # while the first is being committed
    tail.clear_committed()
    tail.close(is_committed=False)
    with abandoned_values(tmp_path) as left:
        assert left.values == {KEYS[1]: VALUES[KEYS[1]]}


def test_a_commit_that_fails_empties_nothing(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    for key in KEYS[:3]:
        tail.write(key, VALUES[key])
        tail.switch()  # a commit begins, and fails
    tail.close(is_committed=False)
    with abandoned_values(tmp_path) as left:
        assert left.values == {key: VALUES[key] for key in KEYS[:3]}


def test_where_no_tail_can_be_written_values_are_still_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", raise_read_only)
    for number in range(2):
        ledger = open_ledger(tmp_path)
        ledger.put(KEYS[number], VALUES[KEYS[number]])
        assert not list(tmp_path.glob("*.tail*"))
        ledger.close()
    ledger = open_ledger(tmp_path)
    assert ledger.get(KEYS) == {key: VALUES[key] for key in KEYS[:2]}
    ledger.close()


def test_a_ledger_that_is_cleared_forgets_what_a_killed_process_had_put(tmp_path: Path) -> None:
    open_ledger(tmp_path).close()
    abandoned(tmp_path, *KEYS)
    assert upkeep.has_records(tmp_path)
    upkeep.clear(tmp_path)
    assert not upkeep.has_records(tmp_path)


def test_values_of_a_killed_process_wait_for_a_folder_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(tmp_path, *KEYS[:3])
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "create", raise_read_only)
        open_ledger(tmp_path).close()
    assert len(list(tmp_path.glob("*.tail"))) == 2
    ledger = open_ledger(tmp_path)
    assert ledger.get(KEYS) == {key: VALUES[key] for key in KEYS[:3]}
    ledger.close()
    assert not list(tmp_path.glob("*.tail"))


def raise_read_only(*_: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


FORKING = """
import os, signal, sys, time
from pathlib import Path
from penstock.cache.ledger import group_commit as committing
from penstock.cache.ledger import key_of, open_ledger

committing.COMMIT_EVERY_S = 60
ledger = open_ledger(sys.argv[1])
ledger.put(key_of(1), b"one")
if not (ending := os.fork()):
    sys.exit()  # with all that a process does at its end
os.waitpid(ending, 0)
assert len(list(Path(sys.argv[1]).glob("*.tail"))) == 2
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
