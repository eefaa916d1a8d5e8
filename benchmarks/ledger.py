"""Measure the ledger by itself: `python -m benchmarks.ledger [FOLDER]`.

Values are 1 kB that cannot be compressed. CPU is of this process, writer thread included: on a busy machine it says
more than the time does.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from penstock.cache.ledger import key_of, open_ledger
from penstock.cache.ledger.maintenance import prune

NUM_APPENDS = 200_000
NUM_LARGE = 1_000_000


def keys_of(first: int, count: int) -> list[bytes]:
    return [key_of(number.to_bytes(8, "little")) for number in range(first, first + count)]


def append(folder: Path, first: int, count: int) -> None:
    """Put values and return when they are on disk."""
    ledger = open_ledger(folder)
    value = random.Random(first).randbytes(984)
    for key in keys_of(first, count):
        ledger.put({key: key + value})
    ledger.close()


def timed(name: str, count: int, work: Callable[[], object]) -> None:
    """Print how long something takes, in all and for each of ``count``."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    rate = f"{count / wall_s:>10,.0f}/s" if count > 1 else ""
    print(f"{name:<44}{wall_s:>8.2f} s {cpu_s:>8.2f} s CPU {rate}", flush=True)


def get_all(folder: Path, keys: list[bytes], batch: int) -> None:
    ledger = open_ledger(folder)
    for start in range(0, len(keys), batch):
        assert len(ledger.get(keys[start : start + batch])) == batch
    ledger.close()


def main(root: Path) -> None:
    small, two, large = root / "small", root / "two", root / "large"
    timed("append, one process", NUM_APPENDS, lambda: append(small, 0, NUM_APPENDS))
    code = f"from benchmarks.ledger import *; append(Path(sys.argv[1]), int(sys.argv[2]), {NUM_APPENDS})"

    def two_processes() -> None:
        command = [sys.executable, "-c", code, str(two)]
        writers = [subprocess.Popen([*command, str(first)]) for first in (0, NUM_APPENDS)]
        assert [writer.wait() for writer in writers] == [0, 0]

    timed("append, two processes (with their start)", 2 * NUM_APPENDS, two_processes)
    keys = keys_of(0, NUM_APPENDS)
    timed("get in order, 1,000 at a time", NUM_APPENDS, lambda: get_all(small, keys, 1000))
    random.Random(1).shuffle(keys)
    timed("get at random, 1,000 at a time", NUM_APPENDS, lambda: get_all(small, keys, 1000))
    timed("get at random, 50 at a time", NUM_APPENDS, lambda: get_all(small, keys, 50))
    timed(f"append {NUM_LARGE:,}", NUM_LARGE, lambda: append(large, 0, NUM_LARGE))
    timed(f"open {NUM_LARGE:,} records", 1, lambda: open_ledger(large).close())
    timed("open and get one", 1, lambda: get_all(large, keys[:1], 1))
    timed(f"get at random of {NUM_LARGE:,}", NUM_APPENDS, lambda: get_all(large, keys, 1000))
    timed("prune to half", 1, lambda: prune(large, time.time(), max_nbytes=NUM_LARGE * 550))


if __name__ == "__main__":
    work = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        main(work)
    finally:
        shutil.rmtree(work)
