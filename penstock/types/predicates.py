"""The predicates of ``DataType``: one for each kind of type, by its Arrow type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.types.extension import EmbeddingType, FileType, ImageType, PythonType, TensorType


def _predicate(test: Callable[[pa.DataType], Any]) -> Callable[[Any], bool]:
    return lambda self: bool(test(self.arrow))


def _class_predicate(arrow_class: type) -> Callable[[Any], bool]:
    return lambda self: isinstance(self.arrow, arrow_class)


class Predicates:
    """The kinds of types."""

    __slots__ = ()

    arrow: pa.DataType

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
    is_union = _predicate(pt.is_union)  # False, as no column is one
    is_fixed_shape_tensor = _predicate(lambda arrow: isinstance(arrow, TensorType) and arrow.shape is not None)
    is_string = _predicate(pt.is_string)

    def is_numeric(self) -> bool:
        """Check whether it holds integers, floats or decimals; booleans are not numbers."""
        return self.is_integer() or self.is_float() or self.is_decimal()

    def is_binary(self) -> bool:
        """Check whether it holds bytes, of fixed size or not."""
        return bool(pt.is_binary(self.arrow) or pt.is_fixed_size_binary(self.arrow))

    def is_temporal(self) -> bool:
        """Check whether it holds dates, times, timestamps or durations."""
        return self.is_date() or self.is_time() or self.is_timestamp() or self.is_duration()

    def is_list(self) -> bool:
        """Return True for list and fixed_size_list."""
        return bool(pt.is_list(self.arrow)) or self.is_fixed_size_list()

    def is_nested(self) -> bool:
        """Check whether it holds lists, structs or maps."""
        return self.is_list() or self.is_struct() or self.is_map()

    def is_special(self) -> bool:
        """Check whether it is an embedding, tensor, image, file or Python object, which Arrow knows as extensions."""
        return isinstance(self.arrow, pa.BaseExtensionType)

    def is_comparable(self) -> bool:
        """Check whether its values have an order."""
        return not (self.is_nested() or self.is_special())
