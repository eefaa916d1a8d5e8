"""``daft.expressions``: names that ``penstock`` has too."""

from penstock.expr.column import Expression, col, element, lit
from penstock.functions import coalesce

__all__ = ["Expression", "coalesce", "col", "element", "lit"]
