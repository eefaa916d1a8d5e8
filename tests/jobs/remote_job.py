"""A job on an object store that kills its process with SIGKILL at a chosen moment."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock import DataType, col
from penstock.jobs.journal import Journal
from penstock.storage.object_stores import ObjectStore

NUM_ROWS = 60
GATED_ROW = 30


def job(calls: str, **options: Any) -> ps.DataFrame:
    """Return numbers and ten times each; ``calls`` is a file with a line for each call.

    Rows that are named in the file ``<calls>.broken`` fail. Row 30 waits while there is a file ``<calls>.gate``.
    """
    broken, gate = f"{calls}.broken", f"{calls}.gate"

    @ps.func(return_dtype=DataType.int64(), **options)
    def ten_times(a: int) -> int:
        descriptor = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{a}\n".encode())
        os.close(descriptor)
        while a == GATED_ROW and os.path.exists(gate):
            time.sleep(0.002)
        if os.path.exists(broken) and str(a) in Path(broken).read_text().split():
            raise ValueError(f"no luck with {a}")
        return a * 10

    batches = [pa.record_batch({"a": list(range(start, start + 10))}) for start in range(0, NUM_ROWS, 10)]
    return ps.from_arrow(pa.Table.from_batches(batches)).with_column("b", ten_times(col("a")))


def part_by_part(journal_cls: Any, calls: str, after: Callable[[int], None] = lambda _: None) -> None:
    """Have row 30 computed when a part of the job is in its journal; ``after`` is told how many parts are."""
    append, num_parts, gate = journal_cls.append, itertools.count(1), Path(f"{calls}.gate")
    gate.touch()

    def append_and_open(self: Any, entry: Any) -> None:
        append(self, entry)
        gate.unlink(missing_ok=True)
        after(next(num_parts))

    journal_cls.append = append_and_open


def killing(method: Callable[..., Any], fatal: str) -> Callable[..., Any]:
    def call(self: ObjectStore, key: Any, *rest: Any) -> Any:
        if fatal in str(key):
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, key, *rest)

    return call


def killed_job(root: str, options: dict[str, Any], calls: str, method: str, fatal: str) -> None:
    """Run the job in a process that dies before the store's method is called with a key that contains ``fatal``."""
    if "journal" in fatal:
        part_by_part(Journal, calls)
    setattr(ObjectStore, method, killing(getattr(ObjectStore, method), fatal))
    ps.set_config(checkpoint_interval=0.001, progress=False)
    job(calls).write_parquet(root, resume=True, storage_options=options)
