"""``DataType`` with the constructors of Ray Data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.compat.translation import refusal
from penstock.types import DataType

_TEMPORAL = {
    "timestamp": (pa.timestamp, "us"), "time32": (pa.time32, "s"), "time64": (pa.time64, "us"),
    "duration": (pa.duration, "us"),
}  # fmt: skip


class RayDataType(DataType):
    """The constructors of types; they return Penstock's types."""

    from_arrow = staticmethod(DataType.from_arrow_type)
    infer_dtype = staticmethod(DataType.from_value)

    @staticmethod
    def from_numpy(numpy_dtype: Any) -> DataType:
        return DataType.from_arrow_type(pa.from_numpy_dtype(np.dtype(numpy_dtype)))

    @staticmethod
    def temporal(temporal_type: str, unit: str | None = None, tz: str | None = None) -> DataType:
        """Return a type of dates or times.

        >>> RayDataType.temporal("timestamp", unit="s", tz="UTC")
        timestamp[s, UTC]
        """
        name = temporal_type.lower()
        if name in ("date32", "date64"):
            return DataType.date()
        if name not in _TEMPORAL:
            raise refusal(f"DataType.temporal({temporal_type!r})", f"use date32, date64, {', '.join(_TEMPORAL)}")
        make, default = _TEMPORAL[name]
        return DataType.from_arrow_type(make(unit or default, **({"tz": tz} if tz else {})))
