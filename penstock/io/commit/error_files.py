"""Store the rows that failed during a write as Parquet files in its hidden folder ``_errors``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.io.commit.output import Output

FOLDER = "_errors"


def stage_errors(output: Output, errors: pa.RecordBatchReader) -> None:
    """Stage the failed rows in a file that is committed with the others."""
    import pyarrow.parquet as pq

    name = f"{FOLDER}/{output.run_id}.parquet"
    with pq.ParquetWriter(output.files.path_for(name), errors.schema) as file:
        for batch in errors:
            file.write_batch(batch)
    output.files.store(name)
    output.moves.append(name)


def error_files(output: Output) -> Iterator[str]:
    """Yield the names of the files of errors that earlier runs have committed."""
    return (name for name in output.files_below(FOLDER) if name.endswith(".parquet"))
