"""The text form of a type: how it is shown, and how ``DataType.parse`` reads it back."""

from __future__ import annotations

import json
import re
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.storage.file import FILE_CLASSES
from penstock.types.datatype import DataType

SIMPLE = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
"""The types without parameters, by the name they are shown under."""

ALIASES = {
    "none": "null",
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int64",
    "integer": "int64",
    "long": "int64",
    "bigint": "int64",
    "half": "float16",
    "real": "float32",
    "float": "float64",
    "double": "float64",
    "str": "string",
    "text": "string",
    "utf8": "string",
    "varchar": "string",
    "char": "string",
    "large_string": "string",
    "bytes": "binary",
    "blob": "binary",
    "bytea": "binary",
    "varbinary": "binary",
    "large_binary": "binary",
    "date32": "date",
    "datetime": "timestamp",
    "timedelta": "duration",
    "interval": "duration",
    "decimal": "decimal128",
    "numeric": "decimal128",
    "array": "list",
    "dict": "map",
    "vector": "embedding",
    "ndarray": "tensor",
    "object": "python",
    "any": "python",
}
"""Other names for types: those of Python, NumPy, Arrow and SQL, which counts bits as Python does (``int`` has 64)."""

FILES = {"file" if media is None else f"{media}_file": media for media in FILE_CLASSES}
"""The types of files by name, with what they hold."""

PARAMETRIC = (
    *("fixed_size_binary", "timestamp", "time", "duration", "decimal128", "decimal256"),
    *("list", "fixed_size_list", "struct", "map", "embedding", "tensor", "image", *FILES, "python"),
)

_SHOWN = {arrow_type: name for name, arrow_type in SIMPLE.items()}
_CLOSING = {"[": "]", "(": ")", "<": ">"}
_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|([\w./+?-]+)|([\[\](){}<>,:;]))""")
_PLAIN_NAME = re.compile(r"[\w./+-]+")


def format_dtype(dtype: DataType) -> str:
    """Return the readable name of a type; ``parse_dtype`` reads it back.

    >>> format_dtype(DataType.embedding(DataType.float32(), 384))
    'embedding[float32; 384]'
    """
    arrow = dtype.arrow
    if arrow in _SHOWN:
        return _SHOWN[arrow]
    if dtype.is_timestamp():
        return f"timestamp[{dtype.unit}, {dtype.timezone}]" if dtype.timezone else f"timestamp[{dtype.unit}]"
    if dtype.is_time() or dtype.is_duration():
        return f"{'time' if dtype.is_time() else 'duration'}[{dtype.unit}]"
    if dtype.is_decimal():
        return f"decimal{arrow.bit_width}[{arrow.precision}, {arrow.scale}]"
    if pt.is_fixed_size_binary(arrow):
        return f"fixed_size_binary[{dtype.size}]"
    if dtype.is_fixed_size_list():
        return f"fixed_size_list[{dtype.inner}; {dtype.size}]"
    if dtype.is_list():
        return f"list[{dtype.inner}]"
    if dtype.is_struct():
        return f"struct[{', '.join(f'{_quote(name)}: {inner}' for name, inner in dtype.fields.items())}]"
    if dtype.is_map():
        return f"map[{dtype.key}: {dtype.value}]"
    if dtype.is_embedding():
        return f"embedding[{dtype.inner}; {dtype.size}]"
    if dtype.is_tensor():
        shape = "" if dtype.shape is None else f"; {'x'.join(map(str, dtype.shape)) or 'scalar'}"
        return f"tensor[{dtype.inner}{shape}]"
    if dtype.is_image():
        parts = [arrow.mode] if arrow.mode else []
        if arrow.height or arrow.width:
            parts.append(f"{arrow.height or '?'}x{arrow.width or '?'}")
        return f"image[{'; '.join(parts)}]" if parts else "image"
    if dtype.is_file():
        return f"{arrow.media}_file" if arrow.media else "file"
    return "python" if dtype.is_python() else str(arrow)


def parse_dtype(text: str) -> DataType:
    """Return the type that ``text`` names, in the form it is shown or in the words of Python or SQL.

    >>> parse_dtype("embedding[float; 384]"), parse_dtype("decimal(10, 2)")
    (embedding[float64; 384], decimal128[10, 2])
    """
    return _Parser(text).parse()


def _quote(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


class _Parser:
    """Recursive descent over ``name`` or ``name[arguments]``; round and angle brackets serve as well."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokenize()
        self.position = 0

    def parse(self) -> DataType:
        dtype = self._dtype()
        if self.position < len(self.tokens):
            self._fail(f"nothing may follow {dtype}")
        return dtype

    def _tokenize(self) -> list[str]:
        tokens, position = [], 0
        while position < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, position)
            if match is None:
                self._fail(f"{self.text[position]!r} has no meaning in a type")
            tokens.append(match.group(1) or match.group(2) or match.group(3))
            position = match.end()
        return tokens

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidArgumentError(f"Cannot read the type {self.text!r}: {reason}.")

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if not token or (expected and token not in expected):
            wanted = " or ".join(map(repr, expected)) if expected else "a name"
            self._fail(f"expected {wanted}, found {token or 'its end'!r}")
        self.position += 1
        return token

    def _integer(self) -> int:
        token = self._take()
        if not token.isdigit():
            self._fail(f"expected a whole number, found {token!r}")
        return int(token)

    def _dtype(self) -> DataType:
        word = self._take()
        name = word.lower()
        name = ALIASES.get(name, name)
        if name not in SIMPLE and name not in PARAMETRIC:
            known = [*SIMPLE, *PARAMETRIC]
            hint = did_you_mean(word.lower(), [*known, *ALIASES])
            raise InvalidArgumentError(f"Unknown type {word!r} in {self.text!r}; known: {', '.join(known)}.{hint}")
        closing = _CLOSING.get(self._peek())
        if closing is None:
            return self._build(name, "")
        self.position += 1
        dtype = self._build(name, closing)
        self._take(closing)
        return dtype

    def _build(self, name: str, closing: str) -> DataType:
        """Read the arguments of ``name``, if there are any, and build it."""
        if name in SIMPLE:
            if closing:
                self._integer()  # varchar(20): the length is no part of our type
            return DataType(SIMPLE[name])
        if name in FILES:
            return DataType.file(FILES[name])
        if name == "python":
            return DataType.python()
        if name in ("time", "duration", "timestamp"):
            return self._temporal(name, closing)
        if name == "image":
            return self._image(closing)
        if not closing:
            if name == "decimal128":
                return DataType.decimal128(38, 18)
            self._fail(f"{name!r} needs arguments, such as {_EXAMPLES[name]!r}")
        return self._container(name, closing)

    def _temporal(self, name: str, closing: str) -> DataType:
        unit = self._take() if closing else "us"
        if unit not in ("s", "ms", "us", "ns"):
            self._fail(f"the unit must be s, ms, us or ns, not {unit!r}")
        if name == "time":
            return DataType.time(unit)
        if name == "duration":
            return DataType.duration(unit)
        timezone = None
        if self._peek() == ",":
            self._take(",")
            # "+05:30" comes as three tokens.
            start = self.position
            while self._peek() not in ("", closing):
                self.position += 1
            timezone = "".join(self.tokens[start : self.position])
        return DataType.timestamp(unit, timezone)

    def _image(self, closing: str) -> DataType:
        mode, height, width = None, None, None
        while closing and self._peek() != closing:
            word = self._take()
            if size := re.fullmatch(r"(\d+|\?)x(\d+|\?)", word):
                height, width = (None if length == "?" else int(length) for length in size.groups())
            else:
                mode = word
            if self._peek() in (";", ","):
                self._take()
        return DataType.image(mode, height, width)

    def _container(self, name: str, closing: str) -> DataType:
        if name == "fixed_size_binary":
            return DataType.fixed_size_binary(self._integer())
        if name in ("decimal128", "decimal256"):
            precision = self._integer()
            scale = self._integer() if self._peek() == "," and self._take(",") else 0
            return DataType((pa.decimal128 if name == "decimal128" else pa.decimal256)(precision, scale))
        if name == "struct":
            return self._struct(closing)
        inner = self._dtype()
        if name == "list":
            return DataType.list(inner)
        if name == "map":
            self._take(":", ",")
            return DataType.map(inner, self._dtype())
        if name == "tensor":
            return DataType.tensor(inner, self._shape(closing))
        self._take(";", ",")
        size = self._integer()
        return DataType.embedding(inner, size) if name == "embedding" else DataType.fixed_size_list(inner, size)

    def _struct(self, closing: str) -> DataType:
        fields: dict[str, DataType] = {}
        while self._peek() != closing:
            field = self._take()
            self._take(":")
            fields[json.loads(field) if field.startswith('"') else field] = self._dtype()
            if self._peek() != closing:
                self._take(",")
        return DataType.struct(fields)

    def _shape(self, closing: str) -> tuple[int, ...] | None:
        if self._peek() == closing:
            return None
        self._take(";", ",")
        text = self._take()
        if text == "scalar":
            return ()
        if not re.fullmatch(r"\d+(x\d+)*", text):
            self._fail(f"a shape reads like 2x3, not {text!r}")
        return tuple(int(length) for length in text.split("x"))


_EXAMPLES = {
    "fixed_size_binary": "fixed_size_binary[16]",
    "decimal256": "decimal256[50, 2]",
    "list": "list[int64]",
    "fixed_size_list": "fixed_size_list[float32; 3]",
    "struct": "struct[a: int64]",
    "map": "map[string: int64]",
    "embedding": "embedding[float32; 384]",
    "tensor": "tensor[float32; 2x3]",
}
