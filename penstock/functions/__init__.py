"""Functions of expressions. Most are methods of ``Expression`` too: ``upper(col("t"))`` is ``col("t").upper()``."""

from penstock.functions.core import coalesce
from penstock.functions.nested import unnest
from penstock.functions.text import format
