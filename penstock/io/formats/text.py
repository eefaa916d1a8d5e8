"""Plain text: one row a line, or one row a file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.io.data_file import DataFile
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.formats.lines import check_encoding, in_utf8, line_blocks, utf8_text, with_compressed

COLUMN = "text"


@dataclass(frozen=True)
class TextFormat(FileFormat):
    """Text files: the column ``text`` holds a line without its end, or with ``whole_text`` a whole file."""

    encoding: str = "utf-8"
    skip_blank_lines: bool = True
    whole_text: bool = False
    name: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".txt", ".text", ".md", ".log")

    def __post_init__(self) -> None:
        check_encoding(self.encoding)

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return pa.schema([(COLUMN, pa.string())])

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file), file.open_stream() as stream:
            content = in_utf8(stream, self.encoding)
            if self.whole_text:
                texts = utf8_text(file, 1, bytes(content.read()).removeprefix(codecs.BOM_UTF8))
                yield self._batch(texts)
                return
            for line, block in line_blocks(content):
                yield self._batch(_split_lines(utf8_text(file, line, block)))

    def _batch(self, texts: pa.Array) -> pa.RecordBatch:
        if self.skip_blank_lines:
            texts = texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))
        return pa.record_batch([texts], [COLUMN])


def _split_lines(text: pa.Array) -> pa.Array:
    lines = pc.split_pattern(text, "\n").values
    if lines[-1].as_py() == "":  # the file ends with a line break
        lines = lines[:-1]
    return pc.replace_substring_regex(lines, r"\r$", "") if "\r" in text[0].as_py() else lines
