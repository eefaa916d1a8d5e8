"""The rows that failed on the way into a folder: Parquet files in its ``_errors/``, which its readers pass over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.io.staging import Staging

FOLDER = "_errors"


def stage_errors(staging: Staging, errors: pa.RecordBatchReader) -> None:
    """Write the rows to a file that is to be committed with the others, one batch at a time."""
    import pyarrow.parquet as pq

    path = staging.data / FOLDER / f"{staging.run_id}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, errors.schema) as file:
        for batch in errors:
            file.write_batch(batch)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def error_files(folder: Path) -> Iterator[str]:
    """Yield the names of the files of errors below a folder of data, relative to it."""
    for path in sorted((folder / FOLDER).glob("*.parquet")):
        yield str(path.relative_to(folder))
