"""A column that could not be computed in full: the values there are, and why the others are null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """What a batch function gives that knows which of its rows failed: ``failures`` by row, where ``values`` is null.

    The engine raises or records them as it does for functions of single rows, so nothing is computed twice.
    """

    values: pa.Array
    failures: Mapping[int, Exception]
