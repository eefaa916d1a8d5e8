"""The rows that failed on the way into a folder: Parquet files in its ``_errors/``, which its readers pass over."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.io.commit.output import Output

FOLDER = "_errors"


def stage_errors(output: Output, errors: pa.RecordBatchReader) -> str:
    """Write the rows, one batch at a time, to a file that is to be committed with the others, and return its name."""
    import pyarrow.parquet as pq

    name = f"{FOLDER}/{output.run_id}.parquet"
    with pq.ParquetWriter(output.path_for(name), errors.schema) as file:
        for batch in errors:
            file.write_batch(batch)
    output.store(name)
    return name


def error_files(output: Output) -> Iterator[str]:
    """Yield the names of the files of errors that earlier runs have committed."""
    return (name for name in output.files_in(FOLDER) if name.endswith(".parquet"))
