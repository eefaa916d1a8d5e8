"""WARC files, in which web crawlers keep the pages they fetch, as rows: the reader of Daft that Penstock lacks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from penstock.errors import CorruptFileError
from penstock.storage.file import File
from penstock.types import DataType

RECORD = DataType.struct(
    {
        "WARC-Record-ID": DataType.string(),
        "WARC-Target-URI": DataType.string(),
        "WARC-Type": DataType.string(),
        "WARC-Date": DataType.timestamp("ns", "Etc/UTC"),
        "Content-Length": DataType.int64(),
        "WARC-Identified-Payload-Type": DataType.string(),
        "warc_content": DataType.binary(),
        "warc_headers": DataType.string(),
    }
)


def records(file: File) -> Iterator[dict[str, Any]]:
    """Yield the records of a WARC file, plain or compressed by gzip: headers, an empty line, the content, two more."""
    with file.open() as stream:
        is_compressed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        source: Any = gzip.GzipFile(fileobj=stream) if is_compressed else stream
        while line := source.readline():
            if not line.startswith(b"WARC/"):
                if line.strip():
                    raise CorruptFileError(f"{file} is not a WARC file: a record begins with {line[:20]!r}.")
                continue
            headers: dict[str, str] = {}
            while (line := source.readline()).strip():
                name, _, value = line.decode("utf-8", "replace").partition(":")
                headers[name.strip()] = value.strip()
            yield _row(headers, source)


def _row(headers: dict[str, str], source: Any) -> dict[str, Any]:
    length = int(headers.pop("Content-Length", 0))
    date = headers.pop("WARC-Date", None)
    return {
        "WARC-Record-ID": headers.pop("WARC-Record-ID", "").removeprefix("<urn:uuid:").removesuffix(">") or None,
        "WARC-Target-URI": headers.pop("WARC-Target-URI", None),
        "WARC-Type": headers.pop("WARC-Type", None),
        "WARC-Date": None if date is None else datetime.fromisoformat(date),
        "Content-Length": length,
        "WARC-Identified-Payload-Type": headers.pop("WARC-Identified-Payload-Type", None),
        "warc_content": source.read(length) or None,
        "warc_headers": json.dumps(headers, ensure_ascii=False, separators=(",", ":")),
    }
