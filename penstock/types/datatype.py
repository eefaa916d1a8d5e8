"""``DataType``: the type of a column, one immutable value over one Arrow type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import NoSuchPartError, TypeMismatchError
from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType
from penstock.types.names import SIMPLE, checked_size, format_type, parse_type, time_type, timestamp_type
from penstock.types.normalize import normal_type
from penstock.types.predicates import Predicates

_INSTEAD = {
    "extension": "use the storage type",
    **dict.fromkeys(("from_arrow", "from_numpy", "temporal"), "use DataType.from_arrow_type() with a type of pyarrow"),
    "sparse_tensor": "use a struct of the values, their places and the shape",
    "union": "give each of its types a column of its own",
    "uuid": "UUIDs are text: use DataType.string()",
}


class Constructors(type):
    """Names the way around for types that Penstock does not have."""

    def __getattr__(cls, name: str) -> Any:
        hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"DataType has no {name!r}{hint}.", name=name)


@dataclass(frozen=True, slots=True, repr=False)
class DataType(Predicates, metaclass=Constructors):
    """The type of a column. Two are equal when they describe the same values; ``arrow`` is the Arrow type beneath.

    The Arrow type is always normalized: it is no large, view, dictionary or run-end encoded variant. UUIDs are text,
    and an extension type of another library is its storage type.

    >>> DataType.list(DataType.string())
    list[string]
    >>> DataType.from_arrow_type(pa.large_string()) == DataType.string()
    True
    """

    arrow: pa.DataType

    def __post_init__(self) -> None:
        if not isinstance(self.arrow, pa.DataType):
            raise TypeMismatchError(f"DataType wraps a pyarrow type, got {self.arrow!r}; use DataType.of() to convert.")
        object.__setattr__(self, "arrow", normal_type(self.arrow))

    def __repr__(self) -> str:
        return format_type(self.arrow)

    # --- constructors -------------------------------------------------------------------------------------------------

    # Types without parameters; ``DataType.int64`` and ``DataType.int64()`` are the same.
    null: ClassVar[DataType]
    bool: ClassVar[DataType]
    int8: ClassVar[DataType]
    int16: ClassVar[DataType]
    int32: ClassVar[DataType]
    int64: ClassVar[DataType]
    uint8: ClassVar[DataType]
    uint16: ClassVar[DataType]
    uint32: ClassVar[DataType]
    uint64: ClassVar[DataType]
    float16: ClassVar[DataType]
    float32: ClassVar[DataType]
    float64: ClassVar[DataType]
    string: ClassVar[DataType]
    binary: ClassVar[DataType]
    date: ClassVar[DataType]
    python: ClassVar[DataType]  # arbitrary Python objects, pickled
    interval: ClassVar[DataType]  # months, days and nanoseconds

    def __call__(self) -> DataType:
        """Return the type itself, so that ``DataType.int64()`` is ``DataType.int64``."""
        return self

    @staticmethod
    def fixed_size_binary(size: int) -> DataType:
        """Fixed-length bytes."""
        return DataType(pa.binary(checked_size("fixed_size_binary", size)))

    @staticmethod
    def time(timeunit: str = "us") -> DataType:
        """Times of day, counted in ``timeunit``: ``s``, ``ms``, ``us`` or ``ns``."""
        return DataType(time_type(timeunit))

    @staticmethod
    def timestamp(timeunit: str = "us", timezone: str | None = None) -> DataType:
        """Points in time; with a timezone they are absolute, without one they are local."""
        return DataType(timestamp_type(timeunit, timezone))

    @staticmethod
    def duration(timeunit: str = "us") -> DataType:
        """Lengths of time, counted in ``timeunit``: ``s``, ``ms``, ``us`` or ``ns``."""
        return DataType(pa.duration(timeunit))

    @staticmethod
    def decimal128(precision: int, scale: int) -> DataType:
        """Exact decimal numbers of ``precision`` digits, ``scale`` of them after the point."""
        return DataType(pa.decimal128(precision, scale))

    @staticmethod
    def list(dtype: Any) -> DataType:
        """Lists of any length."""
        return DataType(pa.list_(DataType.of(dtype).arrow))

    @staticmethod
    def fixed_size_list(dtype: Any, size: int) -> DataType:
        """Fixed-length lists."""
        return DataType(pa.list_(DataType.of(dtype).arrow, checked_size("fixed_size_list", size)))

    @staticmethod
    def struct(fields: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> DataType:
        """Records of named, typed fields: a dict, or pairs.

        >>> DataType.struct({"a": DataType.int64(), "b": "string"})
        struct[a: int64, b: string]
        """
        return DataType(pa.struct([(name, DataType.of(dtype).arrow) for name, dtype in dict(fields).items()]))

    @staticmethod
    def map(key_type: Any, value_type: Any) -> DataType:
        """Dictionaries whose keys are not known beforehand."""
        return DataType(pa.map_(DataType.of(key_type).arrow, DataType.of(value_type).arrow))

    @staticmethod
    def embedding(dtype: Any, size: int) -> DataType:
        """Fixed-length vectors."""
        return DataType(EmbeddingType(DataType.of(dtype).arrow, size))

    @staticmethod
    def tensor(dtype: Any, shape: tuple[int, ...] | None = None) -> DataType:
        """N-dimensional arrays; with ``shape`` all rows have that shape."""
        return DataType(TensorType(DataType.of(dtype).arrow, shape))

    @staticmethod
    def image(mode: str | None = None, height: int | None = None, width: int | None = None) -> DataType:
        """Decoded images; mode, height and width are the same for all rows where given."""
        return DataType(ImageType(mode, height, width))

    @staticmethod
    def file(media_type: str | None = None) -> DataType:
        """References to files, by path or in memory; ``media_type`` is ``image``, ``audio`` or ``video`` if all are."""
        return DataType(FileType(media_type))

    @staticmethod
    def from_arrow_type(arrow_type: pa.DataType) -> DataType:
        """Return the type for an Arrow type, normalised: ``large_string`` is ``string``, a dictionary its values."""
        return DataType(arrow_type)

    @staticmethod
    def parse(text: str) -> DataType:
        """Return the type that ``text`` names, such as ``int64``, ``str`` or ``list[float32]``.

        >>> DataType.parse("struct[id: int, tags: list[text]]")
        struct[id: int64, tags: list[string]]
        """
        return DataType(parse_type(text))

    @staticmethod
    def from_hint(hint: Any) -> DataType:
        """Return the type for a Python type hint; a type that Arrow cannot hold is ``python``.

        >>> DataType.from_hint(list[str] | None)
        list[string]
        """
        return _conversions["hint"](hint)

    @staticmethod
    def from_value(value: Any) -> DataType:
        """Return the type that a column holding only ``value`` would have.

        >>> DataType.from_value({"a": 1.5})
        struct[a: float64]
        """
        return _conversions["value"](value)

    @staticmethod
    def of(source: Any) -> DataType:
        """Return the type that ``source`` stands for: a DataType, its name, an Arrow or NumPy type, or a type hint.

        >>> DataType.of("int"), DataType.of(float), DataType.of(pa.large_binary())
        (int64, float64, binary)
        """
        if isinstance(source, DataType):
            return source
        if isinstance(source, bool | int | float | bytes | list | dict):
            raise TypeMismatchError(
                f"{source!r} is not a type; give a DataType, its name such as 'int64', or a Python type"
            )
        return DataType.from_hint(source)

    def to_arrow_dtype(self) -> pa.DataType:
        """Return the Arrow type beneath."""
        return self.arrow

    # --- parts --------------------------------------------------------------------------------------------

    @property
    def inner(self) -> DataType:
        """The type of the elements of a list, embedding or tensor."""
        return DataType(self._part("value_type", "inner"))

    @property
    def size(self) -> int:
        """The length of every fixed-size list, embedding or fixed-size binary."""
        name = "list_size" if self.is_fixed_size_list() else "byte_width" if self.is_binary() else "size"
        return int(self._part(name, "size"))

    @property
    def fields(self) -> dict[str, DataType]:
        """The name and type of each field of a struct."""
        if not self.is_struct():
            raise self._missing("fields")
        return {field.name: DataType(field.type) for field in self.arrow}

    @property
    def key(self) -> DataType:
        """The type of the keys of a map."""
        return DataType(self._part("key_type", "key"))

    @property
    def value(self) -> DataType:
        """The type of the values of a map."""
        return DataType(self._part("item_type", "value"))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of every embedding, tensor or image, or None if each row has its own."""
        shape: tuple[int, ...] | None = self._part("shape", "shape")
        return shape

    @property
    def timezone(self) -> str | None:
        """The timezone of a timestamp, or None if it is local."""
        timezone: str | None = self._part("tz", "timezone")
        return timezone

    @property
    def unit(self) -> str:
        """The unit of a time, timestamp or duration."""
        return str(self._part("unit", "unit"))

    @property
    def mode(self) -> str | None:
        """The mode of every image, or None if each row has its own."""
        mode: str | None = self._part("mode", "mode")
        return mode

    @property
    def precision(self) -> int:
        """The number of digits of a decimal."""
        return int(self._part("precision", "precision"))

    @property
    def scale(self) -> int:
        """The number of digits of a decimal after the point."""
        return int(self._part("scale", "scale"))

    # The names of Daft.
    dtype, key_type, value_type, timeunit, image_mode = inner, key, value, unit, mode
    infer_from_type, infer_from_object, from_numpy_dtype = from_hint, from_value, from_hint

    def _part(self, arrow_name: str, name: str) -> Any:
        try:
            return getattr(self.arrow, arrow_name)
        except (AttributeError, ValueError):
            raise self._missing(name) from None

    def _missing(self, name: str) -> TypeMismatchError:
        return NoSuchPartError(f"{self} has no {name!r}.")


for _name, _type in {**SIMPLE, "python": PythonType()}.items():
    setattr(DataType, _name, DataType(_type))
DataType.interval = DataType(pa.month_day_nano_interval())

_conversions: dict[str, Callable[[Any], DataType]] = {}


def connect(**conversions: Callable[[Any], DataType]) -> None:
    """Supply the conversions from type hints and values, which build on this module; ``penstock.types`` calls this."""
    _conversions.update(conversions)
