"""Pruning keeps the files that were used last, leaves living writers alone, and loses nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.ledger.maintenance import clear, ledger_folder, prune, stats
from penstock.errors import LedgerError

KEYS = [key_of({"n": number}) for number in range(100)]
DAY_S = 86_400


def value_of(key: bytes) -> bytes:
    return key * 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger of four files, each with 25 records of about 1 kB."""
    ledgers = [open_ledger(tmp_path) for _ in range(4)]
    for number, ledger in enumerate(ledgers):
        for key in KEYS[25 * number : 25 * number + 25]:
            ledger.put({key: value_of(key)})
        ledger.flush()
    for ledger in ledgers:
        ledger.close()
    return tmp_path


def make_older(folder: Path, days: int) -> None:
    """Set the last use of all files to so many days ago, the first file being the oldest."""
    for number, path in enumerate(sorted(folder.glob("*.log"))):
        then = time.time() - days * DAY_S + number
        os.utime(path, (then, then))


def use(folder: Path, keys: list[bytes]) -> None:
    ledger = open_ledger(folder)
    assert len(ledger.get(keys)) == len(keys)
    ledger.close()


def held(folder: Path) -> list[bytes]:
    """Return the keys that are there; their values must be right."""
    ledger = open_ledger(folder)
    found = ledger.get(KEYS)
    ledger.close()
    assert all(value == value_of(key) for key, value in found.items())
    return [key for key in KEYS if key in found]


def test_stats_count_what_is_there(folder: Path) -> None:
    found = stats(folder)
    assert (found.num_records, found.num_files, found.num_files_in_use) == (100, 4, 0)
    assert found.nbytes == sum(path.stat().st_size for path in folder.iterdir())
    assert found.oldest_written_s is not None
    assert abs(time.time() - found.oldest_written_s) < 60
    empty = stats(open_and_close(folder / "empty"))
    assert (empty.num_records, empty.nbytes, empty.oldest_written_s) == (0, 0, None)


def open_and_close(folder: Path) -> Path:
    open_ledger(folder).close()
    return folder


def test_a_file_that_was_not_used_for_long_is_removed(folder: Path) -> None:
    make_older(folder, days=40)
    use(folder, [KEYS[30]])
    result = prune(folder, time.time(), max_age_s=30 * DAY_S)
    assert (result.num_removed, result.num_kept) == (75, 25)
    assert result.nbytes_after < result.nbytes_before * 0.3
    assert held(folder) == KEYS[25:50]
    assert prune(folder, time.time() + 50 * DAY_S, max_age_s=30 * DAY_S).num_kept == 0
    assert stats(folder).nbytes == 0


def test_the_least_recently_used_file_is_removed_until_the_size_is_right(folder: Path) -> None:
    make_older(folder, days=3)
    use(folder, [KEYS[0]])
    result = prune(folder, time.time(), max_nbytes=stats(folder).nbytes * 6 // 10)
    assert (result.num_removed, result.num_kept) == (50, 50)
    assert held(folder) == [*KEYS[:25], *KEYS[75:]]
    assert prune(folder, time.time(), max_nbytes=0).num_kept == 0


def test_a_reader_follows_a_prune(folder: Path) -> None:
    reader = open_ledger(folder)
    assert len(reader.get(KEYS)) == 100
    make_older(folder, days=2)
    use(folder, KEYS[:10])
    prune(folder, time.time(), max_age_s=DAY_S)
    reader.get([key_of(b"another")])  # a key that is missing makes it look
    assert reader.get(KEYS) == {key: value_of(key) for key in KEYS[:25]}
    reader.put({KEYS[50]: value_of(KEYS[50])})
    reader.close()
    assert held(folder) == [*KEYS[:25], KEYS[50]]


def test_a_file_that_is_being_written_is_left(folder: Path) -> None:
    writer = open_ledger(folder)
    new = key_of(b"new")
    writer.put({new: b"v"})
    writer.flush()
    assert stats(folder).num_files_in_use == 1
    for result in (prune(folder, time.time(), max_nbytes=0), clear(folder)):
        assert (result.num_kept, result.num_files_in_use) == (26, 1)
    assert new in writer.get([*KEYS, new])
    writer.close()
    assert clear(folder).num_removed == 26
    assert list(folder.iterdir()) == []


def test_a_missing_ledger_is_not_made(tmp_path: Path) -> None:
    assert ledger_folder(tmp_path) == tmp_path / "ledger"
    with pytest.raises(LedgerError, match="no ledger at"):
        stats(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []
