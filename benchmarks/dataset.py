"""Input data: made once, the same on every machine, kept under `benchmarks/data/`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.workload import Workload

SEED = 20_260_801
NUM_FILES = 8  # every engine reads files in parallel; from one file, not every engine does
ROW_GROUP_ROWS = 125_000


def prepare(workload: Workload, scale: float, data: Path) -> tuple[Path | None, int]:
    """Return the folder of the workload's input, making it if it is not there, and its number of rows."""
    if workload.dataset is None or not (workload.make_batch or workload.make_file):
        return None, 0
    num_rows = max(1 if workload.make_file else NUM_FILES, int(workload.num_rows * scale))
    folder = data / f"{workload.dataset}-{num_rows}"
    if not folder.exists():
        half_made = folder.with_name(folder.name + ".tmp")
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir(parents=True)
        _fill(half_made, workload, num_rows)
        half_made.rename(folder)
    return folder, num_rows


def _fill(folder: Path, workload: Workload, num_rows: int) -> None:
    if workload.make_file is not None:
        for number in range(num_rows):
            workload.make_file(np.random.default_rng([SEED, number]), folder, number)
        return
    bounds = [num_rows * i // NUM_FILES for i in range(NUM_FILES + 1)]
    for i in range(NUM_FILES):
        rng = np.random.default_rng([SEED, i])
        _write_file(folder / f"part-{i}.parquet", workload, rng, bounds[i], bounds[i + 1])


def _write_file(path: Path, workload: Workload, rng: np.random.Generator, start: int, stop: int) -> None:
    assert workload.make_batch is not None
    writer = None
    for row in range(start, stop, ROW_GROUP_ROWS):
        batch = workload.make_batch(rng, row, min(ROW_GROUP_ROWS, stop - row))
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="snappy", use_dictionary=False)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def warm(folder: Path | None) -> None:
    """Read the input through once, so that no engine pays for a cold page cache."""
    for path in folder.iterdir() if folder else ():
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
