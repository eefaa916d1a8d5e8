"""JSON files as Ray Data reads them: with Arrow's options, and text that looks like timestamps to Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.compat.ray.data.arrow_options import arrow_options
from penstock.compat.translation import refusal
from penstock.io.files import find_files


def json_options(parse_options: Any, read_options: Any) -> dict[str, Any]:
    """Return the parameters of ``read_json`` for options of ``pyarrow.json``."""
    given = arrow_options(parse_options, read_options)
    if isinstance(given.get("schema"), pa.Schema):
        given["schema"] = dict(zip(given["schema"].names, given["schema"].types, strict=True))
    unexpected = given.pop("unexpected_field_behavior", "infer")
    if unexpected == "error":
        raise refusal("ParseOptions(unexpected_field_behavior='error')", "use 'ignore' or 'infer'")
    return given | ({"infer_schema": False} if unexpected == "ignore" else {})


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
