"""Use sources and sinks as the engine does, without the engine."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetFormat
from penstock.plan.filters import arrow_filter
from penstock.protocols import Condition, ReadRequest, Sink, Source


def read_table(source: Source, **request: Any) -> pa.Table:
    """Read all tasks, each sent to a worker and back."""
    wanted = requested(source, **request)
    schema = source.schema().to_arrow()
    names = list(wanted.columns) if wanted.columns is not None else schema.names
    batches = [batch for task in source.read_tasks(wanted) for batch in pickle.loads(pickle.dumps(task)).read()]
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))


def requested(source: Source, *conditions: Condition, **request: Any) -> ReadRequest:
    """Return a request as the engine makes it: with the conditions as one Arrow expression too."""
    conditions = conditions or request.pop("conditions", ())
    return ReadRequest(predicate=arrow_filter(conditions, source.schema()), conditions=conditions, **request)


def read_rows(source: Source, **request: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(source, **request).to_pylist()
    return rows


def parquet_rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return read_rows(FileSource(ParquetFormat(), path, **options))


def write_all(sink: Sink, *batches: pa.RecordBatch) -> pa.Table:
    """Write through one writer, in another worker's copy of the sink, and commit."""
    sink.start()
    return sink.commit(write_records(sink, batches))


def write_records(sink: Sink, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    writer = pickle.loads(pickle.dumps(sink)).open()
    records = [record for batch in batches for record in writer.write(batch)]
    records.extend(writer.finish())
    writer.close()
    return records


def visible_files(root: Path) -> list[str]:
    """Return every file below a folder that a reader would see."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not any(part.startswith(("_", ".")) for part in path.parts))


@contextmanager
def interrupted_after_commit(sink: type[Any]) -> Iterator[None]:
    """Expect a write into a sink of this class, and interrupt it between its commit and the note of it."""
    commit = sink.commit

    def interrupted(self: Any, records: Any) -> None:
        commit(self, records)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield
