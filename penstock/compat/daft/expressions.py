"""``daft.expressions``: the names of Daft's module, which are those of ``penstock``."""

from penstock.expr.column import Expression, col, element, lit
from penstock.functions import coalesce

__all__ = ["Expression", "coalesce", "col", "element", "lit"]
