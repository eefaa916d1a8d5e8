"""ORC files: a task reads one stripe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.files import DataFile


@dataclass(frozen=True)
class OrcFormat(FileFormat):
    """Files of Apache ORC, read by Arrow."""

    name: ClassVar[str] = "orc"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)

    def infer_schema(self, file: DataFile) -> pa.Schema:
        with reading(file), file.open_file() as stream:
            return _open(stream).schema

    def parts(self, file: DataFile, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[FilePart]:
        with reading(file), file.open_file() as stream:
            num_stripes = _open(stream).nstripes
        nbytes = None if file.size is None else file.size // max(num_stripes, 1)
        yield from (FilePart(nbytes=nbytes, detail=stripe) for stripe in range(num_stripes))

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file, f"stripe {part.detail}"), file.open_file() as stream:
            opened = _open(stream)
            yield opened.read_stripe(part.detail, [name for name in schema.names if name in opened.schema.names])


def _open(stream: Any) -> Any:
    from pyarrow import orc

    return orc.ORCFile(stream)
