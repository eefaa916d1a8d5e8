"""The functions of ``daft.functions``: all of ``penstock.functions``, and the names that differ."""

import functools as _functools
from collections.abc import Callable
from typing import Any

from penstock import functions
from penstock.compat.remedies import refused_name as _refused_name
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, lit
from penstock.expr.templates import with_doubled_braces as _with_doubled_braces
from penstock.functions import *  # noqa: F403

_OF_DUCKDB = {  # by the names of Daft
    "left": "left", "lpad": "lpad", "right": "right", "rpad": "rpad",
    "ascii_func": "ascii", "chr_func": "chr", "damerau_levenshtein_distance": "damerau_levenshtein",
    "factorial": "factorial",
    "jaro_similarity": "jaro_similarity", "jaro_winkler_similarity": "jaro_winkler_similarity",
    "json_array_length": "json_array_length", "json_object_keys": "json_keys", "last_day": "last_day",
    "levenshtein_distance": "levenshtein", "list_append": "list_append", "split_part": "split_part",
    "translate": "translate", "value_counts": "list_histogram",  # Penstock's ``value_counts`` combines rows
}  # fmt: skip
vars().update({name: _functools.partial(functions.duckdb_function, sql) for name, sql in _OF_DUCKDB.items()})
__all__ = [*dir(functions), *_OF_DUCKDB]


def count(expr: Expression | None = None, mode: str = "valid") -> Expression:  # type: ignore[no-redef]
    """Count values. Count rows if there is no expression, or if ``mode`` is ``all``."""
    if expr is not None:
        return functions.count(expr, mode)  # type: ignore[arg-type]
    if mode != "all":
        raise InvalidArgumentError("count() without a column counts rows; give mode='all'.")
    return RowCount(lit(1).count("all")._node)


class RowCount(Expression):
    """The number of rows; without a name of its own, ``agg`` gives it to each column."""

    __slots__ = ()


def to_list(*items: Any) -> Expression:  # type: ignore[no-redef]
    """Combine several values in a list, in the column ``list``."""
    return functions.to_list(*items).alias("list")


def _of_messages(function: Callable[..., Expression]) -> Callable[..., Expression]:
    @_functools.wraps(function)
    def call(first: Any = None, *args: Any, **options: Any) -> Expression:
        for name in ("messages", "text", "image"):
            first = options.pop(name, first)
        if isinstance(system := options.get("system_message"), str):
            options["system_message"] = _with_doubled_braces(system)
        first = lit(first) if isinstance(first, str) else first  # Daft has no templates
        return function(first, *args, **options)

    return call


for _name in ("classify_image", "classify_text", "embed_image", "embed_text", "prompt"):
    vars()[_name] = _of_messages(getattr(functions, _name))


def __getattr__(name: str) -> Any:
    raise _refused_name("daft.functions", name)
