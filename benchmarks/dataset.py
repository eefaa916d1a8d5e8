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
    if workload.dataset is None or (workload.make_batch is None and workload.make_files is None):
        return None, 0
    num_rows = max(NUM_FILES, int(workload.num_rows * scale))
    folder = data / f"{workload.dataset}-{num_rows}"
    if not folder.exists():
        half_made = folder.with_name(folder.name + ".tmp")
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir(parents=True)
        bounds = [num_rows * i // NUM_FILES for i in range(NUM_FILES + 1)]
        for i in range(NUM_FILES):
            rng = np.random.default_rng([SEED, i])
            if workload.make_files is not None:
                workload.make_files(rng, half_made, bounds[i], bounds[i + 1] - bounds[i])
                continue
            _write_file(half_made / f"part-{i}.parquet", workload, rng, bounds[i], bounds[i + 1])
        half_made.rename(folder)
    return folder, num_rows


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
