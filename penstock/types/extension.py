"""The Arrow extension types of penstock: embeddings, tensors, images, files and Python objects.

Importing this module registers them with Arrow, so a column keeps its type through Parquet, IPC and pickle in every
process that imports penstock. Other readers see the storage type, which is always plain Arrow.

Fixed-shape values are stored as a fixed-size list, so a whole column is one contiguous buffer and becomes an
``(n, *shape)`` ndarray without a copy. Values of unknown shape are stored as a struct of their data and their shape.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, check_choice
from penstock.storage.file import FILE_CLASSES, File
from penstock.types.plain import numpy_values

IMAGE_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
"""The channels of each image mode; every mode has 8 bits a channel."""

IMAGE_MODES = {channels: mode for mode, channels in IMAGE_CHANNELS.items()}


class TensorScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One embedding or tensor; its Python value is a read-only ndarray of its shape."""

    def as_py(self, **_: Any) -> np.ndarray[Any, Any] | None:
        if self.value is None:
            return None
        if self.type.shape is not None:
            return numpy_values(self.value.values).reshape(self.type.shape)
        return numpy_values(self.value["data"].values).reshape(self.value["shape"].as_py())


class ImageScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One image; its Python value is a read-only ``(height, width, channels)`` ndarray of uint8."""

    def as_py(self, **_: Any) -> np.ndarray[Any, Any] | None:
        if self.value is None:
            return None
        if self.type.shape is not None:
            return numpy_values(self.value.values).reshape(self.type.shape)
        shape = [self.value[name].as_py() for name in ("height", "width", "channels")]
        return np.frombuffer(self.value["data"].as_buffer(), np.uint8).reshape(shape)


class FileScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One file; its Python value is a ``File``, of the class that its type names."""

    def as_py(self, **_: Any) -> File | None:
        return None if self.value is None else _file(self.type.media, **self.value.as_py())


def _file(media: str | None, path: str | None, data: bytes | None) -> File:
    return FILE_CLASSES[media](data if data is not None else path or "")


class PythonScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One pickled object; its Python value is the object."""

    def as_py(self, **_: Any) -> Any:
        return None if self.value is None else pickle.loads(self.value.as_buffer())


class FixedShapeArray(pa.ExtensionArray):  # type: ignore[misc]
    """A fixed-shape column; its Python values are read-only views of one ndarray."""

    def to_pylist(self, **_: Any) -> list[np.ndarray[Any, Any] | None]:
        # One view of the column is many times faster than a scalar for each row.
        column = numpy_values(self.storage.flatten()).reshape(-1, *self.type.shape)
        rows = (column[row, ...] for row in range(len(column)))
        return [next(rows) if is_valid else None for is_valid in self.is_valid().to_pylist()]


class FileArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of files; its Python values are ``File`` objects."""

    def to_pylist(self, **_: Any) -> list[File | None]:
        media = self.type.media
        paths, data = (column.to_pylist() for column in self.storage.flatten())
        rows = zip(self.is_valid().to_pylist(), paths, data, strict=True)
        return [_file(media, path, content) if is_valid else None for is_valid, path, content in rows]


class ImageArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of images of several shapes; its Python values are read-only views of its memory."""

    def stacked(self) -> np.ndarray[Any, Any] | None:
        """Return the images as one array ``(n, height, width, channels)``; None if a shape differs or an image is null.

        The array is a read-only view of the memory of the column, in which one image follows the other.
        """
        import pyarrow.compute as pc

        data, *lengths = (self.storage.field(name) for name in ("data", "height", "width", "channels"))
        shape = [column[0].as_py() for column in lengths] if len(self) and not self.null_count else []
        if not shape or any(pc.count_distinct(column).as_py() > 1 for column in lengths):
            return None
        _, offsets, content = data.buffers()
        start, end = (int(np.frombuffer(offsets, np.int64, 1, (data.offset + row) * 8)[0]) for row in (0, len(self)))
        pixels = np.frombuffer(content or b"", np.uint8)[start:end].reshape(len(self), *shape)
        pixels.flags.writeable = False
        return pixels

    def to_pylist(self, **_: Any) -> list[np.ndarray[Any, Any] | None]:
        data, *lengths = (self.storage.field(name) for name in ("data", "height", "width", "channels"))
        _, offsets, content = data.buffers()
        if not len(self) or offsets is None:
            return [None] * len(self)
        bounds = np.frombuffer(offsets, np.int64, len(self) + 1, data.offset * 8).tolist()
        pixels = np.frombuffer(content or b"", np.uint8)
        pixels.flags.writeable = False
        rows = zip(self.is_valid().to_pylist(), *(column.to_pylist() for column in lengths), strict=True)
        return [
            pixels[bounds[row] : bounds[row + 1]].reshape(shape) if is_valid else None
            for row, (is_valid, *shape) in enumerate(rows)
        ]


class _Parametric(pa.ExtensionType):  # type: ignore[misc]
    """Base class of the types. The parameters of a type are its identity; they are stored as JSON."""

    scalar_class: type[pa.ExtensionScalar]

    def __arrow_ext_scalar_class__(self) -> type[pa.ExtensionScalar]:
        return self.scalar_class

    def _parameters(self) -> dict[str, Any]:
        return {}

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._parameters()).encode()

    # Arrow's own __eq__ compares storage only, which would make tensors of shapes (2, 3) and (3, 2) the same type.
    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and self.storage_type == other.storage_type
            and self._parameters() == other._parameters()
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, str(self.storage_type), self.__arrow_ext_serialize__()))


class EmbeddingType(_Parametric):
    """Fixed-length vectors; stored as ``fixed_size_list(value_type, size)``.

    >>> EmbeddingType(pa.float32(), 3).storage_type
    FixedSizeListType(fixed_size_list<item: float>[3])
    """

    scalar_class = TensorScalar

    def __init__(self, value_type: pa.DataType, size: int) -> None:
        _require_number(value_type, "embedding")
        if size < 1:
            raise InvalidArgumentError(f"The size of an embedding must be at least 1, got {size!r}.")
        self.value_type = value_type
        self.size = size
        self.shape = (size,)
        super().__init__(pa.list_(value_type, size), "penstock.embedding")

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> EmbeddingType:
        return cls(storage_type.value_type, storage_type.list_size)

    def __arrow_ext_class__(self) -> type[pa.ExtensionArray]:
        return FixedShapeArray


class TensorType(_Parametric):
    """N-dimensional arrays of one number type.

    With a shape the storage is ``fixed_size_list(value_type, prod(shape))``, in C order; without one it is
    ``struct{data: list<value_type>, shape: list<int32>}`` and each row has its own shape.

    Arrow's canonical ``fixed_shape_tensor`` has the same storage, but its rows are flat Python lists and it cannot have
    an unknown shape. ``normalize`` turns it into this type without a copy.

    >>> TensorType(pa.float32(), (2, 3)).storage_type
    FixedSizeListType(fixed_size_list<item: float>[6])
    """

    scalar_class = TensorScalar

    def __init__(self, value_type: pa.DataType, shape: Sequence[int] | None = None) -> None:
        _require_number(value_type, "tensor")
        self.value_type = value_type
        self.shape = None if shape is None else tuple(int(length) for length in shape)
        if self.shape is None:
            storage = pa.struct([("data", pa.list_(value_type)), ("shape", pa.list_(pa.int32()))])
        elif any(length < 1 for length in self.shape):
            # Parquet cannot hold fixed-size lists without elements.
            raise InvalidArgumentError(f"The lengths of a fixed tensor shape must be at least 1, got {self.shape!r}.")
        else:
            storage = pa.list_(value_type, math.prod(self.shape))
        super().__init__(storage, "penstock.tensor")

    def _parameters(self) -> dict[str, Any]:
        return {"shape": self.shape}

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> TensorType:
        shape = json.loads(serialized)["shape"]
        value_type = storage_type.field("data").type.value_type if shape is None else storage_type.value_type
        return cls(value_type, shape)

    def __arrow_ext_class__(self) -> type[pa.ExtensionArray]:
        return pa.ExtensionArray if self.shape is None else FixedShapeArray


class ImageType(_Parametric):
    """Decoded images of 8 bits a channel, in modes ``L``, ``LA``, ``RGB`` and ``RGBA``.

    When mode, height and width are all known, a column is one ``(n, height, width, channels)`` buffer of uint8.
    Otherwise each row is a struct of its pixels and its own height, width and channels; the mode follows from the
    channels, so it is not stored. Pixels have 64-bit offsets: a batch of decoded images easily passes 2 GiB.

    >>> ImageType("RGB", 4, 2).shape
    (4, 2, 3)
    """

    scalar_class = ImageScalar

    def __init__(self, mode: str | None = None, height: int | None = None, width: int | None = None) -> None:
        if mode is not None:
            check_choice("the mode of an image", mode, IMAGE_CHANNELS)
        for name, length in (("height", height), ("width", width)):
            if length is not None and length < 1:
                raise InvalidArgumentError(f"The {name} of an image must be at least 1, got {length!r}.")
        self.mode = mode
        self.height = height
        self.width = width
        self.shape: tuple[int, int, int] | None = None
        if mode is not None and height is not None and width is not None:
            self.shape = (height, width, IMAGE_CHANNELS[mode])
            storage = pa.list_(pa.uint8(), math.prod(self.shape))
        else:
            storage = pa.struct(
                [("data", pa.large_binary()), ("height", pa.uint32()), ("width", pa.uint32()), ("channels", pa.uint8())]
            )
        super().__init__(storage, "penstock.image")

    def _parameters(self) -> dict[str, Any]:
        return {"mode": self.mode, "height": self.height, "width": self.width}

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ImageType:
        return cls(**json.loads(serialized))

    def __arrow_ext_class__(self) -> type[pa.ExtensionArray]:
        return ImageArray if self.shape is None else FixedShapeArray


class FileType(_Parametric):
    """References to files: a path or URL, or ``data`` for a file that lives in memory only.

    ``media`` is the kind of all of them: ``image``, ``audio``, ``video``, or None if it varies.
    """

    scalar_class = FileScalar

    def __init__(self, media: str | None = None) -> None:
        if media is not None:
            check_choice("the kind of a file", media, filter(None, FILE_CLASSES))
        self.media = media
        super().__init__(pa.struct([("path", pa.string()), ("data", pa.binary())]), "penstock.file")

    def _parameters(self) -> dict[str, Any]:
        return {} if self.media is None else {"media": self.media}

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> FileType:
        return cls(json.loads(serialized or b"{}").get("media"))

    def __arrow_ext_class__(self) -> type[pa.ExtensionArray]:
        return FileArray


class PythonType(_Parametric):
    """Arbitrary Python objects, pickled. Reading one runs its pickle: read such columns only from files you trust."""

    scalar_class = PythonScalar

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "penstock.python")

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> PythonType:
        return cls()


EXTENSION_TYPES = (EmbeddingType, TensorType, ImageType, FileType, PythonType)


def _require_number(value_type: pa.DataType, what: str) -> None:
    is_number = pa.types.is_integer(value_type) or pa.types.is_floating(value_type) or pa.types.is_boolean(value_type)
    if not is_number:
        raise InvalidArgumentError(f"The values of a {what} must be numbers or booleans, got {value_type}.")


def _register() -> None:
    examples = (EmbeddingType(pa.float32(), 1), TensorType(pa.float32()), ImageType(), FileType(), PythonType())
    for example in examples:
        try:
            pa.register_extension_type(example)
        except pa.ArrowKeyError:
            # The module was reloaded; the newer classes replace the older.
            pa.unregister_extension_type(example.extension_name)
            pa.register_extension_type(example)


_register()
