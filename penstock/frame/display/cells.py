"""Values as text, and the part of a table that is shown.

Only the part of a value that is shown is read, so a value of a gigabyte costs no more than a short one.
"""

from __future__ import annotations

import codecs
import io
import json
import pickle
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.observe.printable import ELLIPSIS, format_bytes, format_count, visible_text
from penstock.types import DataType, EmbeddingType, FileType, ImageType, PythonType, TensorType
from penstock.types.extension import IMAGE_MODES


def cell_text(value: pa.Scalar, max_width: int, newline: str = "⏎") -> str:
    """Return a value as one line of text: the whole value if it fits into ``max_width`` cells, else a little more than
    fits.
    """
    text = _text(value, 4 * max_width)
    return "None" if text is None else visible_text(text, newline)


def _text(value: pa.Scalar, limit: int) -> str | None:
    """Return a value as text, possibly cut after ``limit`` characters; None for null."""
    if not value.is_valid:
        return None
    match value:
        case pa.StringScalar() | pa.LargeStringScalar():
            return _string(value, limit)
        case pa.BinaryScalar() | pa.LargeBinaryScalar() | pa.FixedSizeBinaryScalar():
            return _bytes(value, limit)
        case pa.BooleanScalar():
            return "true" if value.as_py() else "false"
        case pa.DoubleScalar() | pa.FloatScalar() | pa.HalfFloatScalar():
            return _real(value.as_py())
        case pa.TimestampScalar() | pa.Date32Scalar() | pa.Date64Scalar() | pa.Time32Scalar() | pa.Time64Scalar():
            return _moment(value)
        case pa.DurationScalar():
            return _duration(value)
        case pa.MapScalar():
            keys, items = value.values.field(0), value.values.field(1)
            pairs = (f"{_json(key, limit)}: {_json(item, limit)}" for key, item in zip(keys, items, strict=True))
            return _joined("{", pairs, "}", limit)
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar() | pa.ListViewScalar():
            return _joined("[", (_json(item, limit) for item in value.values), "]", limit)
        case pa.StructScalar():
            names = (json.dumps(field.name, ensure_ascii=False) for field in value.type)
            pairs = (f"{name}: {_json(value[position], limit)}" for position, name in enumerate(names))
            return _joined("{", pairs, "}", limit)
        case pa.DictionaryScalar():
            return _text(value.value, limit)
        case pa.ExtensionScalar():
            return _extension(value, limit)
        case _:
            return str(value.as_py())


def _real(value: float) -> str:
    """Return a number with six significant digits, with a decimal point, so that it differs from an integer.

    >>> _real(0.1 + 0.2), _real(2.0), _real(1234567.5), _real(1e-9)
    ('0.3', '2.0', '1.23457e+06', '1e-09')
    """
    text = f"{value:.6g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text


def _json(value: pa.Scalar, limit: int) -> str:
    """Return a value inside a list, struct or map, as JSON if possible."""
    text = _text(value, limit)
    if text is None:
        return "null"
    is_text = isinstance(value, pa.StringScalar | pa.LargeStringScalar) or DataType(value.type).is_temporal()
    return json.dumps(text, ensure_ascii=False) if is_text else text


def _joined(opening: str, parts: Iterable[str], closing: str, limit: int) -> str:
    """Return the parts with commas between, up to about ``limit`` characters."""
    texts: list[str] = []
    length = 0
    for part in parts:
        if length > limit:
            return f"{opening}{', '.join(texts)}, {ELLIPSIS}{closing}"
        texts.append(part)
        length += len(part) + 2
    return f"{opening}{', '.join(texts)}{closing}"


def _string(value: pa.Scalar, limit: int) -> str:
    buffer = value.as_buffer()
    is_whole = buffer.size <= 4 * limit
    # An incremental decoder ignores a character that is cut in two.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(buffer.slice(0, min(buffer.size, 4 * limit)).to_pybytes(), final=is_whole)
    return text if is_whole and len(text) <= limit else text[:limit] + ELLIPSIS


def _bytes(value: pa.Scalar, limit: int) -> str:
    buffer = value.as_buffer()
    shown = repr(buffer.slice(0, min(buffer.size, limit)).to_pybytes())[2:-1].replace('"', '\\"').replace("\\'", "'")
    return f'b"{shown}"' if buffer.size <= limit else f'b"{shown}{ELLIPSIS}"'


def _moment(value: pa.Scalar) -> str:
    try:
        text = str(value.cast(pa.string()).as_py())
    except pa.ArrowException:  # this machine does not know the time zone
        text = str(pa.scalar(value.value, pa.timestamp(value.type.unit)).cast(pa.string()).as_py()) + "Z"
    return re.sub(r"\.0+(?=$|Z|[+-])", "", text)


def _duration(value: pa.Scalar) -> str:
    try:
        return str(value.cast(pa.duration("us")).as_py())
    except (pa.ArrowInvalid, OverflowError):  # nanoseconds, or more than Python's timedelta holds
        return f"{value.value} {value.type.unit}"


def _extension(value: pa.ExtensionScalar, limit: int) -> str | None:
    kind, stored = value.type, value.value
    match kind:
        case EmbeddingType():
            return f"<embedding {kind.size} x {DataType(kind.value_type)}>"
        case TensorType():
            shape = stored["shape"].as_py() or () if kind.shape is None else kind.shape
            return f"<tensor {'x'.join(map(str, shape)) or 'scalar'} {DataType(kind.value_type)}>"
        case ImageType():
            if kind.shape is not None:
                height, width, channels = kind.shape
            else:
                height, width, channels = (stored[name].as_py() for name in ("height", "width", "channels"))
            return f"<image {IMAGE_MODES.get(channels, '?')} {width}x{height}>"
        case FileType():
            if stored["path"].is_valid:
                return _text(stored["path"], limit)
            return f"<file {format_bytes(stored['data'].as_buffer().size)}>" if stored["data"].is_valid else "<file>"
        case PythonType():
            return _python(stored.as_buffer(), limit)
        case _:
            return _text(stored, limit)


class _NeedsClassError(Exception):
    """A pickle needs a class; the argument is its name."""


class _PlainUnpickler(pickle.Unpickler):
    """Loads numbers, text and containers only, since showing a file must not run code in it."""

    def find_class(self, module: str, name: str) -> Any:
        raise _NeedsClassError(f"{module}.{name}")


def _python(pickled: pa.Buffer, limit: int) -> str:
    size = format_bytes(pickled.size)
    try:
        plain = _PlainUnpickler(io.BytesIO(pickled)).load()
        short = reprlib.Repr()
        short.maxstring = short.maxother = limit
        return short.repr(plain)
    except _NeedsClassError as needs:
        name = str(needs)
        return f"<python {size}>" if name.startswith("cloudpickle") else f"<python {clipped(name, 80)}, {size}>"
    except Exception:  # a damaged pickle may raise anything
        return f"<python {size}>"


def clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + ELLIPSIS


# --- the shown part of a table ----------------------------------------------------------------------------------------


def format_footer(num_rows: int, total_rows: int | None, num_columns: int) -> str:
    """Return a line with the number of rows shown and the total.

    >>> format_footer(8, 1000, 3), format_footer(8, None, 3), format_footer(8, 8, 3)
    ('(showing first 8 of 1,000 rows)', '(showing first 8 rows)', '(8 rows)')
    """
    if num_columns == 0:
        return "(no columns)"
    if total_rows is None:
        return f"(showing first {format_count(num_rows, 'row')})" if num_rows else "(no rows)"
    if num_rows >= total_rows:
        return f"({format_count(num_rows, 'row')})" if num_rows else "(no rows)"
    return f"(showing first {num_rows:,} of {format_count(total_rows, 'row')})"


def require_positive(what: str, value: int) -> None:
    if value < 1:
        raise InvalidArgumentError(f"{what}={value!r} must be at least 1.")


def ends(positions: Sequence[int], keep: int) -> list[int]:
    """Return the first and the last positions, ``keep`` in all.

    >>> ends(range(10), 5)
    [0, 1, 2, 8, 9]
    """
    if keep >= len(positions):
        return list(positions)
    return [*positions[: (keep + 1) // 2], *positions[len(positions) - keep // 2 :]]
