"""A writer that kills its process with SIGKILL at a chosen moment."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.io.formats.parquet import ParquetEncoding
from penstock.io.writer import FileSink


def write(root: str, mode: str, num_calls: int, moment: str) -> None:
    """Write the numbers from 100 to 109, and die after ``num_calls`` calls of what ``moment`` names."""
    sink = FileSink(root, ParquetEncoding(), mode=mode, rows_per_file=2)
    sink.start()
    writer: Any = sink.open()
    if moment == "write":
        writer.write = _killing(writer.write, num_calls)
    records = [record for value in range(100, 110) for record in writer.write(pa.record_batch({"a": [value]}))]
    records.extend(writer.finish())
    writer.close()
    if moment == "rename":  # the first one is that of the manifest
        os.rename = _killing(os.rename, num_calls)
    if moment == "unlink":
        Path.unlink = _killing(Path.unlink, num_calls)  # type: ignore[method-assign]
    if moment == "interrupt":
        sink.abort()
        return
    sink.commit(records)


def _killing(method: Callable[..., Any], num_calls: int) -> Callable[..., Any]:
    calls = itertools.count()

    def call(*args: Any, **options: Any) -> Any:
        if next(calls) == num_calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*args, **options)

    return call
