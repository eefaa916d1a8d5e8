"""A column in which some rows failed: its values, and the errors of the other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """The result of a batch function that knows its failed rows: ``failures`` by row, where ``values`` is null.

    The engine raises or records them like failures of row functions, so nothing is computed twice.
    """

    values: pa.Array
    failures: Mapping[int, Exception]
