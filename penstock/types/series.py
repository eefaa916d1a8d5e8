"""``Series`` and ``PartialColumn``: the arguments and the results of batch functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.types.cast import cast
from penstock.types.convert import to_arrow_array
from penstock.types.datatype import DataType
from penstock.types.frozen import frozen
from penstock.types.ndarrays import NDArray, default_numpy, python_values, unlocked

if TYPE_CHECKING:
    import torch


class Series:
    """A name and one Arrow array. Immutable; slicing and renaming copy nothing.

    >>> series = Series.from_pylist([1, None, 3], name="x")
    >>> series
    Series('x', int64, 3 rows: [1, None, 3])
    >>> series[2], series[:2].to_pylist()
    (3, [1, None])
    """

    __slots__ = ("_array", "_name")
    __hash__ = object.__hash__

    _name: str
    _array: pa.Array

    def __init__(self, array: pa.Array | pa.ChunkedArray, name: str = "") -> None:
        self._name = name
        self._array = to_arrow_array(array, None, what=f"Series {name!r}")

    @classmethod
    def from_pylist(cls, values: Any, name: str = "", dtype: Any = None) -> Series:
        """Return a list of Python values as a Series, of ``dtype`` if it is given."""
        target = None if dtype is None else DataType.of(dtype)
        return cls(to_arrow_array(values, target, what=f"Series {name!r}"), name)

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray, name: str = "") -> Series:
        """Return an Arrow array as a Series, with chunks combined and the type normalized."""
        return cls(array, name)

    @classmethod
    def from_numpy(cls, array: NDArray, name: str = "", dtype: Any = None) -> Series:
        """Return an ndarray as a Series, with a row for each index of the first dimension."""
        return cls.from_pylist(array, name, dtype)

    @property
    def name(self) -> str:
        """The name of the column."""
        return self._name

    @property
    def dtype(self) -> DataType:
        """The type of the values."""
        return DataType(self._array.type)

    @property
    def null_count(self) -> int:
        """The number of missing values."""
        return int(self._array.null_count)

    def to_arrow(self) -> pa.Array:
        """Return the Arrow array beneath."""
        return self._array

    def to_pylist(self) -> list[Any]:
        """Return the Python values; maps are dicts, embeddings, tensors and images are ndarrays."""
        return python_values(self._array)

    def to_numpy(self) -> NDArray:
        """Return the values as ``default_numpy`` does: read-only and without a copy where Arrow allows.

        NumPy has no missing integers, so tensors of integers, and images, become an object array if one is null.
        """
        return default_numpy(self._array)

    def to_torch(self, *, zero_copy: bool = False) -> torch.Tensor:
        """Return a copy of the values as a torch tensor, shaped like the result of ``to_numpy``.

        With ``zero_copy`` the tensor shares the memory of the column where Arrow allows. Do not write to such a tensor:
        torch cannot make it read-only, and every other holder of the column would see the change.
        """
        import numpy as np
        import torch

        values = self.to_numpy()
        if values.dtype == object and len({np.shape(each) for each in values}) == 1:
            values = np.stack(list(values))  # fixed-length lists
        if values.dtype.kind not in "biuf":
            raise TypeMismatchError(
                f"Series {self._name!r} of type {self.dtype} cannot become a torch tensor; numbers, and lists, "
                "embeddings, tensors and images of one shape, without nulls, can. "
                "Use to_pylist() and convert each value."
            )
        if not values.flags.writeable:
            values = unlocked(values) if zero_copy else values.copy()
        return torch.from_numpy(values)

    def cast(self, dtype: Any) -> Series:
        """Return the values as another type; a value that changes in the conversion raises TypeMismatchError."""
        return Series(cast(self._array, DataType.of(dtype), what=f"Series {self._name!r}"), self._name)

    def rename(self, name: str) -> Series:
        """Return the same values under another name."""
        return Series(self._array, name)

    def __len__(self) -> int:
        return len(self._array)

    def __getattr__(self, name: str) -> Any:
        """Name the way around for the methods of Daft and pandas."""
        remedy = "" if name.startswith("_") else "; use to_arrow() with pyarrow.compute, or to_numpy()"
        raise AttributeError(f"Series has no attribute {name!r}{remedy}.")

    def __eq__(self, other: object) -> bool:
        raise TypeError("A Series has no operators; use to_arrow() with pyarrow.compute, or to_numpy().")

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> Series: ...

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return Series(self._array[key], self._name)
        return self._array[key].as_py(maps_as_pydicts="lossy")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_pylist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        values = self.to_numpy()
        return values if dtype is None and not copy else values.astype(dtype or values.dtype)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        return self._array if type is None else self._array.cast(type)

    def __reduce__(self) -> tuple[type[Series], tuple[pa.Array, str]]:
        return Series, (self._array, self._name)

    def __repr__(self) -> str:
        rows = ", ".join(repr(value) for value in self[:8].to_pylist()) + (", ..." if len(self) > 8 else "")
        return f"Series({self._name!r}, {self.dtype}, {len(self)} rows: [{rows}])"


@frozen
class PartialColumn:
    """The result of a batch function that knows its failed rows: ``failures`` by row, where ``values`` is null.

    The engine raises or records them like failures of row functions, so nothing is computed twice.
    """

    values: pa.Array
    failures: Mapping[int, Exception]
