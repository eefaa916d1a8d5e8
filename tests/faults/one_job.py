"""One run of a job in a process of its own: ``python -m tests.faults.one_job`` with its options as JSON."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from pathlib import Path

import penstock as ps
from penstock import DataType, col
from penstock.functions import decide, prompt, yes_no
from tests.faults.killed_jobs import KINDS


def small_files(folder: Path, out: str) -> None:
    """An entry of the journal is larger than any file of rows."""
    ps.read_parquet(str(folder)).write_parquet(out, resume=True, rows_per_file=1)


def large_file(folder: Path, out: str) -> None:
    """The rows of the last input become a large file."""
    padding = ps.func(lambda n: os.urandom(150_000 if n >= 80 else 10).hex(), return_dtype=DataType.string())
    answer = prompt(col("text"), provider="openai", model="tiny", temperature=0, max_concurrency=4)
    rows = ps.read_parquet(str(folder)).with_column("answer", answer).with_column("padding", padding(col("n")))
    rows.write_parquet(out, resume=True, compression="none")


def large_ledger(folder: Path, out: str) -> None:
    """The answers are large, the rows are not."""
    answer = prompt(col("text"), provider="openai", model="tiny", temperature=0, max_concurrency=4, on_error="null")
    ps.read_parquet(str(folder)).with_column("answer", answer.length()).write_parquet(out, resume=True)


def impatient(folder: Path, out: str) -> None:
    """A call is not tried again."""
    answer = prompt(
        col("text"), provider="openai", model="tiny", temperature=0, max_concurrency=4, max_retries=0, on_error="raise"
    )
    ps.read_parquet(str(folder)).with_column("answer", answer).write_parquet(out, resume=True, rows_per_file=4)


def decisions(folder: Path, out: str) -> None:
    """Two columns of answers by one request for each row."""
    rows = ps.read_parquet(str(folder))
    for name in ("loud", "short"):
        answer = decide("{text}", {name: yes_no(f"Is it {name}?")}, provider="openai", max_concurrency=4)
        rows = rows.with_column(name, answer)
    rows.write_parquet(out, resume=True, rows_per_file=4)


JOBS = KINDS | {each.__name__: each for each in (small_files, large_file, large_ledger, impatient, decisions)}


def main(kind: str, folder: str, url: str, max_file_nbytes: int | None = None) -> None:
    logging.basicConfig(level=logging.WARNING)
    ps.set_provider("openai", base_url=url, api_key="k")
    ps.set_config(checkpoint_interval=0.02, progress=True)
    if max_file_nbytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_nbytes, hard))
    JOBS[kind](Path(folder) / "in", f"{folder}/out")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
