"""``Series`` and ``PartialColumn``: the arguments and the results of batch functions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def _operator(name: str) -> Callable[..., Series]:
    """Return an operator that computes the expression of the same operator."""
    return lambda self, *other: _find_method[0](self, name)(*other)


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

    @classmethod
    def from_pandas(cls, data: Any, name: str = "", dtype: Any = None) -> Series:
        """Return a Series of pandas as a Series."""
        return cls.from_pylist(pa.Array.from_pandas(data), name, dtype)

    @classmethod
    def concat(cls, series: Sequence[Series]) -> Series:
        """Join several Series of one type to a Series with the name of the first."""
        return cls(pa.chunked_array([each._array for each in series]), series[0].name)

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

    def slice(self, start: int, end: int) -> Series:
        """Return the rows from ``start`` up to but not including ``end``."""
        return self[start:end]

    def filter(self, mask: Series) -> Series:
        """Return the rows for which ``mask`` is true."""
        return Series(self._array.filter(mask._array), self._name)

    def take(self, idx: Series) -> Series:
        """Return the rows with these numbers."""
        return Series(self._array.take(idx._array), self._name)

    def argsort(self, descending: bool = False, nulls_first: bool | None = None) -> Series:
        """Return the numbers of the rows in order; nulls are first if the order is descending, as in Daft."""
        import pyarrow.compute as pc

        is_first = descending if nulls_first is None else nulls_first
        order, place = "descending" if descending else "ascending", "at_start" if is_first else "at_end"
        return Series(pc.array_sort_indices(self._array, order=order, null_placement=place), self._name)

    def sort(self, descending: bool = False, nulls_first: bool | None = None) -> Series:
        """Return the rows in order; see ``argsort``."""
        return self.take(self.argsort(descending, nulls_first))

    def datatype(self) -> DataType:
        """Return the type of the values."""
        return self.dtype

    def size_bytes(self) -> int:
        """Return the memory of the values in bytes."""
        return int(self._array.nbytes)

    __add__, __radd__ = _operator("__add__"), _operator("__radd__")
    __sub__, __rsub__ = _operator("__sub__"), _operator("__rsub__")
    __mul__, __rmul__ = _operator("__mul__"), _operator("__rmul__")
    __truediv__, __rtruediv__ = _operator("__truediv__"), _operator("__rtruediv__")
    __floordiv__, __rfloordiv__ = _operator("__floordiv__"), _operator("__rfloordiv__")
    __mod__, __rmod__ = _operator("__mod__"), _operator("__rmod__")
    __pow__, __rpow__ = _operator("__pow__"), _operator("__rpow__")
    __and__, __rand__ = _operator("__and__"), _operator("__rand__")
    __or__, __ror__ = _operator("__or__"), _operator("__ror__")
    __xor__, __rxor__ = _operator("__xor__"), _operator("__rxor__")
    __lshift__, __rlshift__ = _operator("__lshift__"), _operator("__rlshift__")
    __rshift__, __rrshift__ = _operator("__rshift__"), _operator("__rrshift__")
    __eq__ = _operator("__eq__")  # type: ignore[assignment]
    __ne__ = _operator("__ne__")  # type: ignore[assignment]
    __lt__ = _operator("__lt__")
    __le__ = _operator("__le__")
    __gt__ = _operator("__gt__")
    __ge__ = _operator("__ge__")
    __neg__, __abs__, __invert__ = _operator("__neg__"), _operator("__abs__"), _operator("__invert__")

    def __len__(self) -> int:
        return len(self._array)

    def __getattr__(self, name: str) -> Any:
        """Find a function of expressions: ``series.upper()``; see ``penstock.expr.series_methods``."""
        if name.startswith("_"):  # libraries look for protocols of theirs, often
            raise AttributeError(f"Series has no attribute {name!r}.")
        return _find_method[0](self, name)

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: builtins.slice) -> Series: ...

    def __getitem__(self, key: int | builtins.slice) -> Any:
        if isinstance(key, builtins.slice):
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


_find_method: list[Callable[[Series, str], Any]] = []


def connect_methods(find: Callable[[Series, str], Any]) -> None:
    """Supply the lookup of methods that compute expressions, which build on this module."""
    _find_method[:] = [find]


@frozen
class PartialColumn:
    """The result of a batch function that knows its failed rows: ``failures`` by row, where ``values`` is null.

    The engine raises or records them like failures of row functions, so nothing is computed twice.
    """

    values: pa.Array
    failures: Mapping[int, Exception]
