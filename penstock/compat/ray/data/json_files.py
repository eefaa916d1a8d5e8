"""JSON files as Ray Data reads them: text that looks like timestamps to Arrow becomes timestamps."""

from __future__ import annotations

import pyarrow as pa

from penstock.io.files import find_files


def timestamp_columns(path: str, texts: list[str]) -> list[str]:
    """Return the columns that look like timestamps to Arrow in the first megabyte of a file of lines."""
    import pyarrow.json

    with find_files(path)[0].open_stream() as stream:
        start = stream.read(2**20)
    lines = start if len(start) < 2**20 else start[: start.rfind(b"\n") + 1]
    try:
        found = pyarrow.json.read_json(pa.BufferReader(lines)).schema
    except pa.ArrowInvalid:  # an array, or values of several types
        return []
    return [name for name in texts if name in found.names and pa.types.is_timestamp(found.field(name).type)]
