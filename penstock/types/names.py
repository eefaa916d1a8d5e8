"""The text form of a type: how ``str`` shows it and ``DataType.parse`` reads it."""

from __future__ import annotations

import ast
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
        "string": "str text utf8 varchar char large_string",
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
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\w./+?-]+')
_PLAIN_NAME = re.compile(r"[\w./+-]+")
_PUNCTUATION = str.maketrans("(<)>;", "[[]],")


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

    >>> format_type(parse_type("embedding[float; 384]")), format_type(parse_type("decimal(10, 2)"))
    ('embedding[float64; 384]', 'decimal128[10, 2]')
    """
    return _Parser(text).parse()


class _Parser:
    """Parse a type as a Python expression such as ``struct[a: list[int64]]``.

    Each word becomes a variable first, because time zones, shapes and field names are no Python names. Round and angle
    brackets serve as square ones, and a semicolon as a comma.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []

    def parse(self) -> pa.DataType:
        source = _WORD.sub(self._variable, self.text).translate(_PUNCTUATION)
        try:
            tree = ast.parse(re.sub(r"\[\s*\]", "[()]", source).strip(), mode="eval")
        except SyntaxError:
            raise self._error("it is not written like 'list[int64]'") from None
        return self.type(tree.body)

    def type(self, node: ast.expr) -> pa.DataType:
        """Return the type that a part of the text names."""
        arguments: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            node = node.value
        word = self.word(node)
        name = ALIASES.get(word.lower(), word.lower())
        if name in SIMPLE and len(arguments) <= 1:
            _ = [self.number(argument) for argument in arguments]  # varchar(20): types have no length
            return SIMPLE[name]
        if name not in PARAMETRIC:
            known = [*SIMPLE, *PARAMETRIC]
            hint = did_you_mean(word.lower(), [*known, *ALIASES])
            raise InvalidArgumentError(f"Unknown type {word!r} in {self.text!r}; known: {', '.join(known)}.{hint}")
        example, build = PARAMETRIC[name]
        try:
            return build(self, *arguments)
        except InvalidArgumentError:
            raise
        except (TypeError, ValueError):
            raise self._error(f"write {name!r} like {example!r}") from None

    def word(self, node: ast.expr) -> str:
        """Return a word; a time zone such as ``+05:30`` is a slice of two."""
        match node:
            case ast.Name(id=variable):
                word = self.words[int(variable.removeprefix("_"))]
                return str(json.loads(word)) if word.startswith('"') else word
            case ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper):
                return f"{self.word(lower)}:{self.word(upper)}"
        raise self._error("a name is missing")

    def number(self, node: ast.expr) -> int:
        return int(self.word(node))

    def pair(self, node: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Return both sides of ``name: type``."""
        if not isinstance(node, ast.Slice) or node.lower is None or node.upper is None:
            raise ValueError(self.text)
        return node.lower, node.upper

    def _variable(self, match: re.Match[str]) -> str:
        self.words.append(match[0])
        return f"_{len(self.words) - 1}"

    def _error(self, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"Cannot read the type {self.text!r}: {reason}.")


def _struct(parser: _Parser, *fields: ast.expr) -> pa.DataType:
    pairs = [parser.pair(field) for field in fields]
    return pa.struct({parser.word(name): parser.type(dtype) for name, dtype in pairs})


def _map(parser: _Parser, *arguments: ast.expr) -> pa.DataType:
    key, value = parser.pair(arguments[0]) if len(arguments) == 1 else arguments
    return pa.map_(parser.type(key), parser.type(value))


def _tensor(parser: _Parser, inner: ast.expr, shape: ast.expr | None = None) -> pa.DataType:
    if shape is None:
        return TensorType(parser.type(inner))
    text = parser.word(shape)
    return TensorType(parser.type(inner), () if text == "scalar" else [int(length) for length in text.split("x")])


def _image(parser: _Parser, *arguments: ast.expr) -> pa.DataType:
    mode, height, width = None, None, None
    for word in map(parser.word, arguments):
        if size := re.fullmatch(r"(\d+|\?)x(\d+|\?)", word):
            height, width = (None if length == "?" else int(length) for length in size.groups())
        else:
            mode = word
    return ImageType(mode, height, width)


def _plain(make: Callable[..., pa.DataType], convert: type[int] | type[str], *defaults: int | str) -> Builder:
    """Return the builder of a type whose arguments are numbers or words."""

    def build(parser: _Parser, *arguments: ast.expr) -> pa.DataType:
        return make(*([convert(parser.word(argument)) for argument in arguments] or defaults))

    return build


def time_type(unit: str) -> pa.DataType:
    """Return the Arrow type of times of day in ``unit``, which has 32 or 64 bits."""
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


# The types with parameters: how each is written, and how to build it from its arguments.
PARAMETRIC: dict[str, tuple[str, Builder]] = {
    "fixed_size_binary": ("fixed_size_binary[16]", _plain(lambda size: pa.binary(size), int)),
    "timestamp": ("timestamp[us, UTC]", _plain(pa.timestamp, str, "us")),
    "time": ("time[us]", _plain(time_type, str, "us")),
    "duration": ("duration[us]", _plain(pa.duration, str, "us")),
    "decimal128": ("decimal128[10, 2]", _plain(pa.decimal128, int, 38, 18)),
    "decimal256": ("decimal256[50, 2]", _plain(pa.decimal256, int, 38, 18)),
    "list": ("list[int64]", lambda parser, inner: pa.list_(parser.type(inner))),
    "fixed_size_list": (
        "fixed_size_list[float32; 3]",
        lambda parser, inner, size: pa.list_(parser.type(inner), parser.number(size)),
    ),
    "struct": ("struct[a: int64]", _struct),
    "map": ("map[string: int64]", _map),
    "embedding": (
        "embedding[float32; 384]",
        lambda parser, inner, size: EmbeddingType(parser.type(inner), parser.number(size)),
    ),
    "tensor": ("tensor[float32; 2x3]", _tensor),
    "image": ("image[RGB; 224x224]", _image),
    **{
        "file" if media is None else f"{media}_file": ("file", lambda parser, media=media: FileType(media))
        for media in FILE_CLASSES
    },
    "python": ("python", lambda parser: PythonType()),
}
