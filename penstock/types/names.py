"""The text form of a type: how ``str`` shows it and ``DataType.parse`` reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.storage.file import FILE_CLASSES
from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType

SIMPLE = {
    name: pa.type_for_alias(name)
    for name in (
        *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "string", "binary"),
    )
} | {"date": pa.date32()}
"""The types without parameters, by the name they are shown under."""

ALIASES = {
    alias: name
    for name, aliases in {
        "null": "none",
        "bool": "boolean",
        "int8": "tinyint",
        "int16": "smallint",
        "int64": "int integer long bigint",
        "float16": "half",
        "float32": "real",
        "float64": "float double",
        "string": "str text utf8 varchar char large_string uuid",
        "binary": "bytes blob bytea varbinary large_binary",
        "date": "date32",
        "timestamp": "datetime",
        "duration": "timedelta interval",
        "decimal128": "decimal numeric",
        "list": "array",
        "map": "dict",
        "embedding": "vector",
        "tensor": "ndarray",
        "python": "object any",
    }.items()
    for alias in aliases.split()
}
"""Other names of types in Python, NumPy, Arrow and SQL. ``int`` has 64 bits, as in Python."""

Builder: TypeAlias = Callable[..., pa.DataType]

_SHOWN = {arrow_type: name for name, arrow_type in SIMPLE.items()}
_TYPE = re.compile(r"\s*([\w./+?-]+)\s*(?:[\[(<](.*)[\])>])?\s*", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)
_PLAIN_NAME = re.compile(r"[\w./+-]+")


def format_type(arrow_type: pa.DataType) -> str:
    """Return the readable name of a type; ``parse_type`` reads it back.

    >>> format_type(EmbeddingType(pa.float32(), 384))
    'embedding[float32; 384]'
    """
    match arrow_type:
        case EmbeddingType():
            return f"embedding[{format_type(arrow_type.value_type)}; {arrow_type.size}]"
        case TensorType(shape=shape):
            lengths = "" if shape is None else f"; {'x'.join(map(str, shape)) or 'scalar'}"
            return f"tensor[{format_type(arrow_type.value_type)}{lengths}]"
        case ImageType(mode=mode, height=height, width=width):
            parts = [mode] if mode else []
            parts += [f"{height or '?'}x{width or '?'}"] if height or width else []
            return f"image[{'; '.join(parts)}]" if parts else "image"
        case FileType(media=media):
            return f"{media}_file" if media else "file"
        case PythonType():
            return "python"
        case _:
            return _SHOWN.get(arrow_type) or _format_arrow(arrow_type)


def _format_arrow(arrow_type: pa.DataType) -> str:
    if pt.is_timestamp(arrow_type):
        return f"timestamp[{arrow_type.unit}, {arrow_type.tz}]" if arrow_type.tz else f"timestamp[{arrow_type.unit}]"
    if pt.is_time(arrow_type) or pt.is_duration(arrow_type):
        return f"{'time' if pt.is_time(arrow_type) else 'duration'}[{arrow_type.unit}]"
    if pt.is_decimal(arrow_type):
        return f"decimal{arrow_type.bit_width}[{arrow_type.precision}, {arrow_type.scale}]"
    if pt.is_fixed_size_binary(arrow_type):
        return f"fixed_size_binary[{arrow_type.byte_width}]"
    if pt.is_fixed_size_list(arrow_type):
        return f"fixed_size_list[{format_type(arrow_type.value_type)}; {arrow_type.list_size}]"
    if pt.is_list(arrow_type):
        return f"list[{format_type(arrow_type.value_type)}]"
    if pt.is_map(arrow_type):
        return f"map[{format_type(arrow_type.key_type)}: {format_type(arrow_type.item_type)}]"
    if pt.is_struct(arrow_type):
        return f"struct[{', '.join(f'{_quote(field.name)}: {format_type(field.type)}' for field in arrow_type)}]"
    return str(arrow_type)


def _quote(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def parse_type(text: str) -> pa.DataType:
    """Return the type that ``text`` names, in the form it is shown or in the words of Python or SQL.

    Round and angle brackets serve as square ones, and a semicolon as a comma.

    >>> format_type(parse_type("embedding[float; 384]")), format_type(parse_type("decimal(10, 2)"))
    ('embedding[float64; 384]', 'decimal128[10, 2]')
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(f"Cannot read the type {text!r}: it is not written like 'list[int64]'.")
    word, inside = match[1], (match[2] or "").strip()
    name = ALIASES.get(word.lower(), word.lower())
    if name in SIMPLE and (not inside or inside.isdecimal()):  # varchar(20): types have no length
        return SIMPLE[name]
    if name not in PARAMETRIC:
        known = [*SIMPLE, *PARAMETRIC]
        hint = did_you_mean(word.lower(), [*known, *ALIASES])
        raise InvalidArgumentError(f"Unknown type {word!r}; known: {', '.join(known)}.{hint}")
    example, build = PARAMETRIC[name]
    try:
        return build(*(_split(inside, ",;") if inside else ()))
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"Cannot read the type {text!r}: write {name!r} like {example!r}.") from None


def _split(text: str, separators: str) -> list[str]:
    """Split at the separators outside brackets and quotes."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in "[(<") - (token in "])>")
        if token in separators and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts]


def _struct(*fields: str) -> pa.DataType:
    pairs = [_split(field, ":") for field in fields]
    return pa.struct([(json.loads(name) if name.startswith('"') else name, parse_type(dtype)) for name, dtype in pairs])


def _map(*arguments: str) -> pa.DataType:
    key, value = _split(arguments[0], ":") if len(arguments) == 1 else arguments
    return pa.map_(parse_type(key), parse_type(value))


def _tensor(inner: str, shape: str | None = None) -> pa.DataType:
    lengths = None if shape is None else () if shape == "scalar" else [int(length) for length in shape.split("x")]
    return TensorType(parse_type(inner), lengths)


def _image(*arguments: str) -> pa.DataType:
    mode, height, width = None, None, None
    for word in arguments:
        if size := re.fullmatch(r"(\d+|\?)x(\d+|\?)", word):
            height, width = (None if length == "?" else int(length) for length in size.groups())
        else:
            mode = word
    return ImageType(mode, height, width)


def _file(media: str | None) -> Builder:
    return lambda: FileType(media)


def time_type(unit: str = "us") -> pa.DataType:
    """Return the Arrow type of times of day in ``unit``, which has 32 or 64 bits."""
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def timestamp_type(unit: str = "us", timezone: str | None = None) -> pa.DataType:
    """Return the Arrow type of timestamps; the timezone must be known on this machine."""
    return pa.timestamp(unit, checked_timezone(timezone))


def checked_timezone(timezone: str | None) -> str | None:
    """Return the name of a timezone, or raise InvalidArgumentError if Arrow does not know it."""
    if timezone in (None, "UTC"):  # common, and needed without loading more
        return timezone
    import pyarrow.compute as pc

    try:
        pc.assume_timezone(pa.scalar(0, pa.timestamp("s")), timezone)
    except (pa.ArrowInvalid, TypeError):
        import zoneinfo

        hint = did_you_mean(str(timezone), zoneinfo.available_timezones())
        raise InvalidArgumentError(
            f"{timezone!r} is not a timezone; use a name such as 'Europe/Paris' or an offset such as '+02:00'.{hint}"
        ) from None
    return timezone


def checked_size(name: str, size: int) -> int:
    """Return the length of a fixed-length type; Arrow would take -1 for any length."""
    if size < 0:
        raise InvalidArgumentError(f"The size of {name} must be a whole number of at least 0, got {size!r}.")
    return size


# The types with parameters: how each is written, and how to build it from the texts of its arguments.
PARAMETRIC: dict[str, tuple[str, Builder]] = {
    "fixed_size_binary": (
        "fixed_size_binary[16]",
        lambda size: pa.binary(checked_size("fixed_size_binary", int(size))),
    ),
    "timestamp": ("timestamp[us, UTC]", timestamp_type),
    "time": ("time[us]", time_type),
    "duration": ("duration[us]", lambda unit="us": pa.duration(unit)),
    "decimal128": ("decimal128[10, 2]", lambda digits=38, scale=18: pa.decimal128(int(digits), int(scale))),
    "decimal256": ("decimal256[50, 2]", lambda digits=38, scale=18: pa.decimal256(int(digits), int(scale))),
    "list": ("list[int64]", lambda inner: pa.list_(parse_type(inner))),
    "fixed_size_list": (
        "fixed_size_list[float32; 3]",
        lambda inner, size: pa.list_(parse_type(inner), checked_size("fixed_size_list", int(size))),
    ),
    "struct": ("struct[a: int64]", _struct),
    "map": ("map[string: int64]", _map),
    "embedding": ("embedding[float32; 384]", lambda inner, size: EmbeddingType(parse_type(inner), int(size))),
    "tensor": ("tensor[float32; 2x3]", _tensor),
    "image": ("image[RGB; 224x224]", _image),
    **{"file" if media is None else f"{media}_file": ("file", _file(media)) for media in FILE_CLASSES},
    "python": ("python", PythonType),
}
