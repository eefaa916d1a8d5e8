"""The functions of ``daft.functions``: those of ``penstock.functions``, and the names that differ."""

from penstock.functions import *  # noqa: F403
from penstock.functions import ascii as ascii_func, chr as chr_func

__all__ = ["ascii_func", "chr_func"]  # and all of penstock.functions
