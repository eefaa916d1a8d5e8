"""The predicates of ``DataType``: one for each kind of type, by its Arrow type and its label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType


class Label(NamedTuple):
    """The meaning that a column was given beyond its Arrow type; ``details`` are its parameters."""

    name: str
    details: Any = None


def _predicate(test: Callable[[pa.DataType], Any]) -> Callable[[Any], bool]:
    return lambda self: bool(test(self.arrow))


def _label_predicate(name: str) -> Callable[[Any], bool]:
    return lambda self: self.label is not None and self.label.name == name


def _class_predicate(arrow_class: type) -> Callable[[Any], bool]:
    return lambda self: isinstance(self.arrow, arrow_class)


class Predicates:
    """The kinds of types."""

    __slots__ = ()

    arrow: pa.DataType
    label: Label | None

    is_int8, is_int16 = _predicate(pt.is_int8), _predicate(pt.is_int16)
    is_int32, is_int64 = _predicate(pt.is_int32), _predicate(pt.is_int64)
    is_uint8, is_uint16 = _predicate(pt.is_uint8), _predicate(pt.is_uint16)
    is_uint32, is_uint64 = _predicate(pt.is_uint32), _predicate(pt.is_uint64)
    is_float16, is_float32 = _predicate(pt.is_float16), _predicate(pt.is_float32)
    is_float64 = _predicate(pt.is_float64)
    is_null = _predicate(pt.is_null)
    is_boolean = _predicate(pt.is_boolean)
    is_integer = _predicate(pt.is_integer)
    is_float = _predicate(pt.is_floating)
    is_decimal = _predicate(pt.is_decimal)
    is_decimal128 = _predicate(pt.is_decimal128)
    is_fixed_size_binary = _predicate(pt.is_fixed_size_binary)
    is_date = _predicate(pt.is_date)
    is_time = _predicate(pt.is_time)
    is_timestamp = _predicate(pt.is_timestamp)
    is_duration = _predicate(pt.is_duration)
    is_fixed_size_list = _predicate(pt.is_fixed_size_list)
    is_struct = _predicate(pt.is_struct)
    is_map = _predicate(pt.is_map)
    is_embedding = _class_predicate(EmbeddingType)
    is_tensor = _class_predicate(TensorType)
    is_image = _class_predicate(ImageType)
    is_file = _class_predicate(FileType)
    is_python = _class_predicate(PythonType)
    is_interval = _predicate(pt.is_interval)
    is_union = _predicate(pt.is_union)
    is_sparse_tensor = _predicate(lambda arrow: pt.is_struct(arrow) and arrow.names == ["values", "indices", "shape"])
    is_uuid, is_extension = _label_predicate("uuid"), _label_predicate("extension")
    is_fixed_shape_sparse_tensor = _label_predicate("sparse_tensor")
    is_fixed_shape_tensor = _predicate(lambda arrow: isinstance(arrow, TensorType) and arrow.shape is not None)
    is_fixed_shape_image = _predicate(lambda arrow: isinstance(arrow, ImageType) and arrow.shape is not None)

    def is_string(self) -> bool:
        """Check whether it holds text; a UUID is text with a type of its own."""
        return bool(pt.is_string(self.arrow)) and not self.is_uuid()

    def is_numeric(self) -> bool:
        """Check whether it holds integers, floats or decimals; booleans are not numbers."""
        return self.is_integer() or self.is_float() or self.is_decimal()

    def is_binary(self) -> bool:
        """Check whether it holds bytes, of any length or of one."""
        return bool(pt.is_binary(self.arrow) or pt.is_fixed_size_binary(self.arrow))

    def is_temporal(self) -> bool:
        """Check whether it holds dates, times, timestamps or durations."""
        return self.is_date() or self.is_time() or self.is_timestamp() or self.is_duration()

    def is_list(self) -> bool:
        """Check whether it holds lists, of any length or of one."""
        return bool(pt.is_list(self.arrow)) or self.is_fixed_size_list()

    def is_nested(self) -> bool:
        """Check whether it holds lists, structs or maps."""
        return self.is_list() or self.is_struct() or self.is_map()

    def is_special(self) -> bool:
        """Check whether it is an embedding, tensor, image, file or Python object, which Arrow knows as extensions."""
        return isinstance(self.arrow, pa.BaseExtensionType)

    def is_logical(self) -> bool:
        """Check whether it gives a meaning to another type that stores it: times, decimals, UUIDs, tensors, images."""
        is_plain_object = self.is_python() or self.is_extension()
        has_meaning = self.is_special() or self.is_uuid() or self.is_sparse_tensor()
        return self.is_temporal() or self.is_decimal() or self.is_map() or (has_meaning and not is_plain_object)

    def is_comparable(self) -> bool:
        """Check whether its values have an order."""
        return not (self.is_nested() or self.is_special())
