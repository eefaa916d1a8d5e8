"""``daft.expressions``: names that ``penstock`` has too, and Daft's conversion methods such as ``as_int64``."""

from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, element, lit
from penstock.expr.public_functions import METHODS
from penstock.functions import coalesce
from penstock.types import DataType

__all__ = ["Expression", "coalesce", "col", "element", "lit"]

_TYPES = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32", "float64",
    "bool", "string", "binary", "date", "file", "null", "python", "time", "timestamp", "duration", "decimal128",
    "fixed_size_binary", "list", "fixed_size_list", "struct", "map", "embedding", "tensor", "image", "interval",
)  # fmt: skip


def _conversion(dtype: str) -> Callable[..., Expression]:
    """Return ``col("a").as_int64()``, which is ``col("a").cast("int64")``."""

    def convert(expr: Expression, *args: Any, **options: Any) -> Expression:
        try:
            return expr.cast(getattr(DataType, dtype)(*args, **options))
        except OverflowError as exc:
            raise InvalidArgumentError(f"as_{dtype}: {exc}") from exc

    return convert


METHODS.update({f"as_{dtype}": _conversion(dtype) for dtype in _TYPES})
