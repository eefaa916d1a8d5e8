"""Pruning keeps what was used last, leaves living writers alone, and loses nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.ledger.maintenance import clear, ledger_folder, prune, stats, verify
from penstock.cache.ledger.record import ENTRY, checks
from penstock.errors import LedgerError

KEYS = [key_of({"n": number}) for number in range(100)]
DAY_S = 86_400


def value_of(key: bytes) -> bytes:
    return key * 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger of 100 records of about 1 kB."""
    ledger = open_ledger(tmp_path)
    for key in KEYS:
        ledger.put(key, value_of(key))
    ledger.close()
    return tmp_path


def make_older(folder: Path, days: int) -> None:
    """Let all records be written so many days ago."""
    for path in folder.glob("*.index"):
        entries = np.fromfile(path, ENTRY)
        entries["written"] -= days * DAY_S
        entries["check"] = checks(entries)
        entries.tofile(path)


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
    assert (found.num_records, found.num_files, found.num_files_in_use, found.num_damaged_files) == (100, 1, 0, 0)
    assert found.nbytes == sum(path.stat().st_size for path in folder.iterdir())
    assert found.oldest_written_s is not None
    assert abs(time.time() - found.oldest_written_s) < 60
    empty = stats(open_and_close(folder / "empty"))
    assert (empty.num_records, empty.nbytes, empty.oldest_written_s) == (0, 0, None)


def open_and_close(folder: Path) -> Path:
    open_ledger(folder).close()
    return folder


def test_what_was_not_used_for_long_is_removed(folder: Path) -> None:
    make_older(folder, days=40)
    use(folder, KEYS[20:50])
    result = prune(folder, time.time(), max_age_s=30 * DAY_S)
    assert (result.num_removed, result.num_kept) == (70, 30)
    assert result.nbytes_after < result.nbytes_before * 0.4
    assert held(folder) == KEYS[20:50]
    assert verify(folder) == (30, 0)
    assert prune(folder, time.time(), max_age_s=30 * DAY_S).num_removed == 0  # when they were used came along
    assert prune(folder, time.time() + 50 * DAY_S, max_age_s=30 * DAY_S).num_kept == 0
    assert stats(folder).nbytes == 0


def test_the_least_recently_used_is_removed_until_the_size_is_right(folder: Path) -> None:
    make_older(folder, days=3)
    use(folder, KEYS[60:80])
    limit = stats(folder).nbytes // 3
    result = prune(folder, time.time(), max_nbytes=limit)
    assert limit * 0.9 < result.nbytes_after <= limit
    assert set(KEYS[60:80]) <= set(held(folder))
    assert prune(folder, time.time(), max_nbytes=0).num_kept == 0


def test_a_reader_follows_a_prune(folder: Path) -> None:
    reader = open_ledger(folder)
    assert len(reader.get(KEYS)) == 100
    make_older(folder, days=2)
    use(folder, KEYS[:10])
    prune(folder, time.time(), max_age_s=DAY_S)
    reader.get([key_of(b"another")])  # a key that is missing makes it look
    assert reader.get(KEYS) == {key: value_of(key) for key in KEYS[:10]}
    reader.put(KEYS[50], value_of(KEYS[50]))
    reader.close()
    assert held(folder) == [*KEYS[:10], KEYS[50]]


def test_files_that_are_being_written_are_left(folder: Path) -> None:
    writer = open_ledger(folder)
    new = key_of(b"new")
    writer.put(new, b"v")
    writer.flush()
    assert stats(folder).num_files_in_use == 1
    for result in (prune(folder, time.time(), max_nbytes=0), clear(folder)):
        assert (result.num_removed, result.num_kept, result.num_files_in_use) == (0, 101, 1)
    assert len(writer.get([*KEYS, new])) == 101
    writer.close()
    assert clear(folder).num_removed == 101
    assert list(folder.iterdir()) == []


def test_damage_is_found_by_reading_everything(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert verify(folder) == (99, 1)


def test_a_missing_ledger_is_not_made(tmp_path: Path) -> None:
    assert ledger_folder(tmp_path) == tmp_path / "ledger"
    with pytest.raises(LedgerError, match="no ledger at"):
        stats(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []
