"""Conversions between ndarrays and Arrow arrays, a column at a time and without a copy where the layouts agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.types.datatype import DataType
from penstock.types.extension import IMAGE_CHANNELS, IMAGE_MODES, EmbeddingType, ImageArray, ImageType, TensorType
from penstock.types.plain import arrow_numbers, arrow_values, contains_type, numpy_values

NDArray = np.ndarray[Any, Any]


def default_numpy(array: pa.Array) -> NDArray:
    """Return the values as NumPy users expect them, read-only and without a copy where Arrow has the layout of NumPy.

    Embeddings and fixed-size lists give ``(n, size)``, fixed-shape tensors ``(n, *shape)``, images of equal shape ``(n,
    height, width, channels)``. Text, structs, maps, pickled objects and values of different shapes give an object
    array. A null becomes NaN among numbers, as in pyarrow, a row of NaN among float vectors, and None elsewhere. So
    arrays of integers, such as images, become an object array if one of them is null.

    >>> default_numpy(pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)))
    array([[1, 2],
           [3, 4]])
    """
    arrow_type = array.type
    if isinstance(arrow_type, EmbeddingType | TensorType | ImageType) and arrow_type.shape is not None:
        return _rows_of(array.storage, arrow_type.shape)
    if pt.is_fixed_size_list(arrow_type):
        return _rows_of(array, (arrow_type.list_size,))
    if isinstance(array, ImageArray) and (stacked := array.stacked()) is not None:
        return stacked
    if _needs_python(arrow_type):
        return object_array(python_values(array))
    return numpy_values(array)


class _Memory:
    """The memory of an array, declared writable. NumPy and torch keep this object, and so the array, alive."""

    def __init__(self, array: NDArray) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._array = array


def unlocked(array: NDArray) -> NDArray:
    """Return a writable array of the same memory; torch warns about read-only ones."""
    return np.asarray(_Memory(array)) if array.size else array.copy()


def python_values(array: pa.Array) -> list[Any]:
    """Return the values as Python objects, maps as dicts.

    pyarrow builds a scalar for each value to make dicts, which is eight times slower, so do it only for maps.
    """
    try:
        has_map = contains_type(array.type, pt.is_map)
        values: list[Any] = array.to_pylist(maps_as_pydicts="lossy") if has_map else array.to_pylist()
    except OverflowError as exc:
        raise ComputeError(
            f"A value of type {array.type} is out of the range of the Python type ({exc}); Python times have the "
            "years 1 to 9999. Use to_arrow(), or cast the column to int64 first."
        ) from exc
    return values


def object_array(values: Sequence[Any]) -> NDArray:
    """Return a 1-d object array; ``np.array`` would make equally long lists a matrix."""
    return np.fromiter(values, object, len(values))


def _rows_of(lists: pa.FixedSizeListArray, shape: tuple[int, ...]) -> NDArray:
    # flatten() drops null rows; without nulls it is a view.
    flat = default_numpy(lists.flatten())
    num_valid = len(lists) - lists.null_count
    rows = flat.reshape((num_valid, *shape, *flat.shape[1:]))
    if not lists.null_count:
        return rows
    is_valid = numpy_values(lists.is_valid())
    if rows.dtype.kind == "f":
        spread = np.full((len(lists), *rows.shape[1:]), np.nan, rows.dtype)
        spread[is_valid] = rows
        return spread
    boxed = np.full(len(lists), None, object)
    for position, row in zip(np.flatnonzero(is_valid), rows, strict=True):
        boxed[position] = row
    return boxed


def _needs_python(arrow_type: pa.DataType) -> bool:
    """Check whether ``to_numpy`` of pyarrow returns the storage instead of the Python values."""
    if isinstance(arrow_type, pa.BaseExtensionType) or any(
        is_kind(arrow_type) for is_kind in (pt.is_struct, pt.is_map)
    ):
        return True
    return bool(
        pt.is_list(arrow_type) and (pt.is_nested(arrow_type.value_type) or _needs_python(arrow_type.value_type))
    )


def as_ndarray(value: Any) -> NDArray:
    """Return a torch tensor, or anything else that NumPy reads as an array, as an ndarray on the CPU."""
    if type(value).__module__.partition(".")[0] != "torch":
        return np.asarray(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    # NumPy has no bfloat16; float32 holds all of its values.
    array: NDArray = tensor.float().numpy() if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()
    return array


def is_array(value: Any) -> bool:
    """Check whether ``value`` is an array of NumPy, torch or another library, but not a NumPy scalar."""
    if isinstance(value, np.ndarray):
        return True
    return hasattr(value, "__array__") and hasattr(value, "ndim") and not isinstance(value, np.generic | pa.Array)


def from_ndarray(values: NDArray, dtype: DataType | None, what: str) -> pa.Array:
    """Return an ndarray of numbers, text or times as Arrow, with a row for each index of the first dimension.

    Without a dtype, several dimensions make a tensor column. The result may share memory with ``values``.
    """
    if values.ndim == 0:
        raise TypeMismatchError(
            f"{what}: has the single value {values!r}, expected an array with one value for each row."
        )
    values = _arrow_ready(values)
    if values.dtype.names is not None:
        columns = [from_ndarray(values[name], None, what) for name in values.dtype.names]
        return pa.StructArray.from_arrays(columns, names=list(values.dtype.names))
    if values.ndim == 1:
        return _flat(values, what)
    if dtype is None:
        dtype = _natural_dtype(values, what)
    shape = values.shape[1:]
    if dtype.is_list():
        return _list_rows(values, dtype, what)
    if dtype.is_embedding() and shape == (dtype.size,):
        return fixed_rows(_flat(values, what), dtype.arrow)
    if dtype.is_tensor() and dtype.shape in (shape, None):
        flat = _flat(values, what)
        return ragged_rows(flat, [shape] * len(values), dtype) if dtype.shape is None else fixed_rows(flat, dtype.arrow)
    if dtype.is_image() and values.dtype == np.uint8:
        return _image_rows(values, dtype, what)
    raise TypeMismatchError(f"{what}: has an array of shape {values.shape} and type {values.dtype}, expected {dtype}.")


def fixed_rows(flat: pa.Array, arrow_type: pa.DataType, mask: pa.Array | None = None) -> pa.Array:
    """Return fixed-length rows from their concatenated elements; ``mask`` is true for a null row."""
    is_extension = isinstance(arrow_type, pa.BaseExtensionType)
    storage_type = arrow_type.storage_type if is_extension else arrow_type
    flat = flat.cast(storage_type.value_type) if flat.type != storage_type.value_type else flat
    lists = pa.FixedSizeListArray.from_arrays(flat, storage_type.list_size, mask=mask)
    return pa.ExtensionArray.from_storage(arrow_type, lists) if is_extension else lists


def ragged_rows(
    flat: pa.Array, shapes: Sequence[tuple[int, ...]], dtype: DataType, mask: pa.Array | None = None
) -> pa.Array:
    """Return a tensor column of unknown shape from the concatenated elements and the shape of each row."""
    sizes = [math.prod(shape) for shape in shapes]
    data = pa.ListArray.from_arrays(offsets_of(sizes), flat.cast(dtype.inner.arrow))
    lengths = pa.array([length for shape in shapes for length in shape], pa.int32())
    shape = pa.ListArray.from_arrays(offsets_of([len(shape) for shape in shapes]), lengths)
    storage = pa.StructArray.from_arrays([data, shape], fields=list(dtype.arrow.storage_type), mask=mask)
    return pa.ExtensionArray.from_storage(dtype.arrow, storage)


def as_image(value: NDArray, dtype: DataType) -> NDArray:
    """Return one image as ``(height, width, channels)``, or raise ValueError if it does not fit ``dtype``."""
    image = value[:, :, np.newaxis] if value.ndim == 2 else value
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in IMAGE_MODES:
        raise ValueError(f"an image is uint8 of shape (height, width, 1 to 4), not {value.dtype} {value.shape}")
    height, width, mode = dtype.arrow.height, dtype.arrow.width, dtype.arrow.mode
    wanted = (height, width, IMAGE_CHANNELS[mode] if mode else None)
    if any(want is not None and want != length for want, length in zip(wanted, image.shape, strict=True)):
        raise ValueError(f"the image has shape {image.shape}")
    return image


def _arrow_ready(values: NDArray) -> NDArray:
    """Return the array in native byte order and with a time unit of Arrow."""
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind in "mM":
        unit = np.datetime_data(values.dtype)[0]
        if unit in ("Y", "M", "W") and values.dtype.kind == "M":
            return values.astype("M8[D]")
        if unit in ("W", "D", "h", "m") and (values.dtype.kind == "m" or unit != "D"):
            return values.astype(f"{values.dtype.kind}8[s]")
    return values


def _natural_dtype(values: NDArray, what: str) -> DataType:
    inner = DataType(_flat(values[:0], what).type)
    if not (inner.is_integer() or inner.is_float() or inner.is_boolean()):
        for _ in values.shape[1:]:
            inner = DataType.list(inner)
        return inner
    # A fixed shape has no zero in it (see TensorType).
    return DataType.tensor(inner, values.shape[1:] if all(values.shape[1:]) else None)


def _flat(values: NDArray, what: str) -> pa.Array:
    try:
        array = arrow_values(values.reshape(-1))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as exc:
        raise TypeMismatchError(f"{what}: has an array of {values.dtype}, which Arrow cannot hold: {exc}") from exc
    if isinstance(array, pa.ChunkedArray):
        raise too_large(what)
    return array


def _list_rows(values: NDArray, dtype: DataType, what: str) -> pa.Array:
    size = values.shape[1]
    if dtype.is_fixed_size_list() and dtype.size != size:
        raise TypeMismatchError(f"{what}: has an array of shape {values.shape}, expected rows of {dtype}.")
    elements = values.reshape(-1, *values.shape[2:])
    inner = from_ndarray(elements, dtype.inner, what)
    if inner.type != dtype.inner.arrow:
        inner = inner.cast(dtype.inner.arrow)
    if dtype.is_fixed_size_list():
        return pa.FixedSizeListArray.from_arrays(inner, size)
    return pa.ListArray.from_arrays(offsets_of([size] * len(values)), inner)


def _image_rows(values: NDArray, dtype: DataType, what: str) -> pa.Array:
    images = values[..., np.newaxis] if values.ndim == 3 else values
    try:
        as_image(images[0] if len(images) else np.zeros(images.shape[1:], np.uint8), dtype)
    except ValueError as exc:
        raise TypeMismatchError(f"{what}: has an array of shape {values.shape}, expected {dtype}: {exc}.") from exc
    if dtype.shape is not None:
        return fixed_rows(_flat(images, what), dtype.arrow)
    # Arrow reads contiguous buffers as bytes, which saves a copy of each image.
    pixels = pa.array([np.ascontiguousarray(image).data.cast("B") for image in images], pa.large_binary())
    fields = list(dtype.arrow.storage_type)
    sizes = [pa.repeat(pa.scalar(n, f.type), len(images)) for n, f in zip(images.shape[1:], fields[1:], strict=True)]
    return pa.ExtensionArray.from_storage(dtype.arrow, pa.StructArray.from_arrays([pixels, *sizes], fields=fields))


def offsets_of(sizes: Sequence[int]) -> pa.Array:
    """Return the offsets of consecutive lists of these sizes."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise too_large("column")
    return arrow_numbers(ends.astype(np.int32))


def too_large(what: str) -> InvalidArgumentError:
    """Return the error for a column that is too large for one Arrow batch."""
    return InvalidArgumentError(
        f"{what}: has more than 2 GiB of data in one batch; use smaller batches (batch_size=, into_batches) or more "
        "partitions."
    )
