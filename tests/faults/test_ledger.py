"""A ledger whose files are damaged, whose writer is killed, whose disk is full: nothing wrong, nothing flushed lost."""

from __future__ import annotations

import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.ledger.record import ENTRY_NBYTES, decoded_all, find_entries
from penstock.cache.ledger.segment import HEADER_NBYTES, header
from penstock.errors import LedgerError

NUM_RECORDS = 200


def key_number(number: int) -> bytes:
    return key_of({"n": number})


def value_number(number: int) -> bytes:
    """Bytes that only this number has, of up to 4 kB; every second value can be compressed."""
    dice, nbytes = random.Random(number), number * 37 % 4000
    return dice.randbytes(nbytes) if number % 2 else (dice.randbytes(200) * 20)[:nbytes]


VALUES = {key_number(number): value_number(number) for number in range(NUM_RECORDS)}
KEYS = list(VALUES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger of some hundred records, written in four commits and closed."""
    ledger = open_ledger(tmp_path)
    for first in range(0, NUM_RECORDS, NUM_RECORDS // 4):
        for key in KEYS[first : first + NUM_RECORDS // 4]:
            ledger.put({key: VALUES[key]})
        ledger.flush()
    ledger.close()
    return tmp_path


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def change(path: Path, offset: int, data: bytes) -> None:
    """Overwrite a part of a file; a negative offset counts from its end."""
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        file.write(data)


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def shorten(path: Path, nbytes: int) -> None:
    os.truncate(path, path.stat().st_size - nbytes)


def log_of(folder: Path) -> Path:
    return only(folder, "*.log")


def index_of(folder: Path) -> Path:
    return only(folder, "*.index")


def lose_index_and_tear(folder: Path) -> None:
    """Leave an index that is behind and an incomplete record, as a power cut may."""
    os.truncate(index_of(folder), 48 * 150)
    shorten(log_of(folder), 11)


Damage = Callable[[Path], object]

DAMAGES: dict[str, tuple[Damage, int, str]] = {  # what is done, how many records may be lost, what is said
    "a flipped byte in the last value": (lambda f: change(log_of(f), -9, b"\xa5"), 1, "199 records .* kept"),
    "a flipped byte in the middle": (lambda f: change(log_of(f), 100_000, b"\xa5\x5a"), 1, "damaged"),
    "a torn page": (lambda f: change(log_of(f), 8 * 4096, bytes(4096)), 6, "damaged"),
    "a torn page at the end": (lambda f: change(log_of(f), -4096, bytes(4096)), 6, "records can be read"),
    "a truncated log": (lambda f: shorten(log_of(f), 20_000), 16, "records can be read"),
    "a log cut within an entry": (lambda f: shorten(log_of(f), 3430), 2, "records can be read"),
    "garbage behind the log": (lambda f: append(log_of(f), os.urandom(5000)), 0, "200 records can be read"),
    "zeros behind the log": (lambda f: append(log_of(f), bytes(4096)), 0, "200 records can be read"),
    "half a record behind the log": (
        lambda f: append(log_of(f), log_of(f).read_bytes()[HEADER_NBYTES:1000]),
        0,
        "200 records can be read",
    ),
    "garbage behind the index": (lambda f: append(index_of(f), os.urandom(480)), 0, "200 records can be read"),
    "a page of zeros in the index": (lambda f: change(index_of(f), 4096, bytes(4096)), 0, "200 records can be read"),
    "a truncated index": (lambda f: shorten(index_of(f), 1000), 0, ""),
    "no index": (lambda f: index_of(f).unlink(), 0, ""),
    "an index behind and a torn record": (lose_index_and_tear, 1, "199 records can be read"),
    "a damaged header": (lambda f: change(log_of(f), 3, b"X"), 0, "200 records can be read"),
    "an overwritten beginning": (lambda f: change(log_of(f), 0, os.urandom(9000)), 24, "17\\d records can be read"),
    "a log of garbage": (lambda f: log_of(f).write_bytes(os.urandom(50_000)), 200, "is renamed to"),
    "an empty log": (lambda f: log_of(f).write_bytes(b""), 200, "is renamed to"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_can_be_read_is_kept_and_the_rest_is_asked_again(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, max_lost, message = DAMAGES[name]
    damage(folder)
    ledger = open_ledger(folder)
    found = ledger.get(KEYS)
    assert all(VALUES[key] == value for key, value in found.items())
    assert NUM_RECORDS - max_lost <= len(found) <= NUM_RECORDS
    said = " ".join(record.getMessage() for record in caplog.records)
    assert bool(said) == bool(message)
    assert not message or re.search(message, said), said
    for key in KEYS:  # as a query does for missing calls
        if key not in found:
            ledger.put({key: VALUES[key]})
    assert ledger.get(KEYS) == VALUES
    ledger.close()

    open_ledger(folder).close()  # rebuilds the index of a file whose damage was found by reading
    caplog.clear()
    ledger = open_ledger(folder)
    assert ledger.get(KEYS) == VALUES
    ledger.close()
    assert not caplog.records


def test_random_damage_never_gives_a_wrong_value(folder: Path) -> None:
    dice = random.Random(7)
    for _ in range(25):
        path = dice.choice([*folder.glob("*.log"), *folder.glob("*.index")])
        size = path.stat().st_size
        match dice.randrange(4):
            case 0:
                change(path, dice.randrange(size + 1), dice.randbytes(dice.randrange(1, 3000)))
            case 1:
                os.truncate(path, dice.randrange(size + 1))
            case 2:
                append(path, dice.randbytes(dice.randrange(3000)))
            case _:
                change(path, dice.randrange(size + 1) // 4096 * 4096, bytes(4096))
        ledger = open_ledger(folder)
        found = ledger.get(KEYS)
        assert all(VALUES[key] == value for key, value in found.items())
        for key in KEYS:
            if key not in found:
                ledger.put({key: VALUES[key]})
        ledger.flush()
        assert ledger.get(KEYS) == VALUES
        ledger.close()


def test_a_flipped_bit_never_makes_another_value(folder: Path) -> None:
    log = log_of(folder).read_bytes()
    entries = find_entries(log, 0)
    assert len(entries) == NUM_RECORDS
    assert set(entries["codec"].tolist()) == {0, 1}
    for key, entry in zip(KEYS, entries, strict=True):
        start, end = int(entry["offset"]) - ENTRY_NBYTES, int(entry["offset"]) + int(entry["length"])
        length = end - start - ENTRY_NBYTES
        assert decoded_all(log, [(key, start, length)], 0) == [VALUES[key]]
        for at in [*range(40), *range(ENTRY_NBYTES, end - start, 97)]:
            record = bytearray(log[start:end])
            record[at] ^= 1 << at % 8
            assert decoded_all(bytes(record), [(key, 0, length)], 0) in ([None], [VALUES[key]])


def test_a_damaged_record_is_found_while_a_ledger_is_open(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = open_ledger(folder)
    assert ledger.get(KEYS[100:101])
    change(log_of(folder), 100_000, b"\xa5\x5a")
    lost = [key for key in KEYS if key not in ledger.get([key])]
    assert len(lost) == 1
    assert "count as missing" in caplog.text
    ledger.put({lost[0]: VALUES[lost[0]]})
    ledger.flush()
    assert ledger.get(KEYS) == VALUES
    ledger.close()


def test_a_ledger_of_a_newer_version_is_refused(folder: Path) -> None:
    change(log_of(folder), 0, header(version=2))
    with pytest.raises(LedgerError, match=r"newer penstock \(format 2; this one knows up to 1\). Upgrade"):
        open_ledger(folder)


KILLED = """
import os, random, select, signal, sys
from penstock.cache.ledger import open_ledger
from tests.faults.test_ledger import key_number, value_number

def write(reports, first):
    ledger = open_ledger(sys.argv[1])
    expected = {key_number(n): value_number(n) for n in range(max(first - 500, 0), first)}
    assert ledger.get(list(expected)) == expected
    dice, number = random.Random(first), first
    while True:
        for _ in range(dice.choice((1, 10, 100))):
            ledger.put({key_number(number): value_number(number)})
            number += 1
            os.write(reports, b"%d\\n" % number)
        if dice.random() < 0.3:
            ledger.flush()

num_put, dice = 0, random.Random(5)
for _ in range(24):
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        try:
            write(writer, num_put)
        finally:
            os._exit(1)
    os.close(writer)
    # It is killed at an instant that has nothing to do with what it does, but after it has written something.
    said = os.read(reader, 100)
    select.select([], [], [], dice.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the writer failed by itself"
    while rest := os.read(reader, 65536):
        said += rest
    os.close(reader)
    num_put = int(said.split()[-1])
print(num_put)
"""


def test_a_writer_is_killed_again_and_again(tmp_path: Path) -> None:
    """Whatever was put is there, also if it was put in the last instant, and never committed."""
    result = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True, capture_output=True, text=True)
    num_put = int(result.stdout)
    assert num_put > 24
    ledger = open_ledger(tmp_path)
    expected = {key_number(number): value_number(number) for number in range(num_put)}
    assert ledger.get(list(expected)) == expected
    beyond = {key_number(number): value_number(number) for number in range(num_put, num_put + 1000)}
    assert ledger.get(list(beyond)).items() <= beyond.items()
    ledger.close()
    assert len(list(tmp_path.glob("*.log"))) == 1  # each writer goes on with the file of the one that was killed


FULL_DISK = """
import contextlib, resource, sys
from penstock.errors import LedgerError
from penstock.cache.ledger import key_of, open_ledger

ledger = open_ledger(sys.argv[1])
keys = [key_of({"n": n}) for n in range(300)]
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
for key in keys[:200]:
    with contextlib.suppress(LedgerError):
        ledger.put({key: key * 60})
for attempt in range(2):
    try:
        ledger.flush()
    except LedgerError as exc:
        print(exc)
    assert ledger.get(keys[:200]) == {key: key * 60 for key in keys[:200]}
try:
    ledger.put({keys[200]: keys[200] * 60})  # it is kept, and the caller must stop
except LedgerError as exc:
    print(exc)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
ledger.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
for key in keys[201:]:
    with contextlib.suppress(LedgerError):
        ledger.put({key: key * 60})
try:
    ledger.close()
except LedgerError as exc:
    print(exc)
"""


def test_a_full_disk_is_reported_and_writing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], check=True, capture_output=True, text=True
    )
    *failures, at_close = result.stdout.splitlines()
    for message, num_waiting in zip(failures, (200, 200, 201), strict=True):
        assert f"The ledger {str(tmp_path)!r} cannot be written: [Errno 27] File too large" in message
        assert "bytes are free there" in message
        assert f"{num_waiting} finished calls ({num_waiting * 1160:,} bytes) wait in memory" in message
    assert "99 finished calls" in at_close
    assert "they may be lost" in at_close
    keys = [key_of({"n": n}) for n in range(300)]
    ledger = open_ledger(tmp_path)
    found = ledger.get(keys)
    assert found.items() >= {key: key * 60 for key in keys[:201]}.items()
    assert len(found) <= 202, "of the others, what a limit of 1,000 bytes leaves room for"
    ledger.close()


MEMORY_FULL = """
import resource, sys
from penstock.errors import LedgerError
from penstock.cache.ledger import key_of, open_ledger, store

store.MAX_UNSYNCED_NBYTES = 100_000
ledger = open_ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for number in range(200):
    try:
        ledger.put({key_of({"n": number}): bytes(1000)})
    except LedgerError as exc:
        failure = exc
print(failure)
"""


def test_what_waits_for_a_full_disk_is_bounded(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEMORY_FULL, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert "File too large" in result.stdout
    assert "84 finished calls (100,800 bytes)" in result.stdout


def test_a_folder_that_was_deleted_is_an_error_that_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    ledger = open_ledger(tmp_path / "a")
    ledger.put({KEYS[0]: b"v"})
    ledger.flush()
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    (tmp_path / "a").rmdir()
    ledger.put({KEYS[1]: b"w"})
    assert KEYS[2] not in ledger.get(KEYS[:3])
    with pytest.raises(LedgerError, match="No such file"):
        ledger.flush()
    (tmp_path / "a").mkdir()
    ledger.flush()
    assert ledger.get(KEYS[:2]) == {KEYS[1]: b"w"}
    ledger.close()
