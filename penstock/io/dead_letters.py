"""The rows that failed on the way into a folder: Parquet files in its ``_errors/``, which its readers pass over."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.io.output import Output

FOLDER = "_errors"


def stage_errors(output: Output, errors: pa.Table) -> str:
    """Write the rows to a file that is to be committed with the others, and return its name."""
    import pyarrow.parquet as pq

    name = f"{FOLDER}/{output.run_id}.parquet"
    pq.write_table(errors, output.path_for(name))
    output.store(name)
    return name


def error_files(output: Output) -> Iterator[str]:
    """Yield the names of the files of errors that earlier runs have committed."""
    return (name for name in output.files_in(FOLDER) if name.endswith(".parquet"))
