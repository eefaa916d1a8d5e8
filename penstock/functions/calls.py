"""Calls of built-in functions that run as UDFs do, each in its own stage: a file that fails is one failed row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from penstock.config import piece_nbytes
from penstock.expr.column import Expression, to_expr
from penstock.expr.kinds import Kind
from penstock.expr.nodes import Expr, PythonValue, UdfCall
from penstock.expr.udf import BatchSize, Builtin, OnError, Policy, Resources, Target, UdfSpec
from penstock.media.images.decoder import ImageDecoder
from penstock.media.sources import SourceAccess
from penstock.storage.access import ANYTHING, configured_access
from penstock.types import DataType
from penstock.udf.options import check_positive, check_whole, error_policy
from penstock.udf.specs import make_spec

MediaOnError = Literal["raise", "null", "log"]

ENCODED = Kind(
    "binary or a file",
    lambda d: d.is_binary() or d.is_file(),
    "read paths and URLs with .download() first, or convert them with .image_file()",
)

TRANSFER_NBYTES = 64 * 2**20
"""Target size of what one task transfers: it stays in memory until the whole task is done."""
TRANSFERS_PER_CONNECTION = 1.25
"""Files of one task. Eight tasks are in flight, so ten files per connection; more would only hold memory."""


def media_call(
    name: str,
    function: Callable[..., Any],
    dtype: DataType,
    file_expr: Expression,
    on_error: str,
    batch_size: BatchSize = "auto",
    *,
    use_process: bool | None = None,
    access: SourceAccess | None = None,
    password: str | None = None,
    **options: Any,
) -> Expression:
    """Return the call of a function of single files; ``options`` are expressions or constants.

    ``access`` says which files the paths of the column may name; None applies the settings. Plans and errors show
    neither it nor ``password``.
    """
    spec = _media_spec(name, function, dtype, error_policy(name, on_error), batch_size, use_process)
    kwargs: dict[str, Expr] = {option: to_expr(value) for option, value in options.items()}
    hidden = {"access": access or _configured_source_access(), "password": password}
    kwargs |= {option: PythonValue(value) for option, value in hidden.items() if value is not None}
    return Expression(UdfCall(spec, (to_expr(file_expr),), tuple(kwargs.items())))


def _configured_source_access() -> SourceAccess | None:
    access = configured_access()
    return None if access == ANYTHING else SourceAccess(access)


@functools.cache  # specs are compared by identity, so equal calls share one column
def _media_spec(
    name: str,
    function: Callable[..., Any],
    dtype: DataType,
    on_error: OnError,
    batch_size: BatchSize,
    use_process: bool | None,
) -> UdfSpec:
    options = {
        "return_dtype": dtype, "on_error": on_error, "max_errors": None, "batch_size": batch_size,
        "use_process": use_process,
    }  # fmt: skip
    return replace(make_spec(function, options), name=name)


def decode_call(encoded: Expression, decoder: ImageDecoder, on_error: str) -> Expression:
    """Return the images that a decoder makes of bytes or files."""
    return Expression(UdfCall(_decode_spec(decoder, error_policy("decode_image", on_error)), (to_expr(encoded),)))


@functools.lru_cache(maxsize=64)  # specs are compared by identity, so equal calls share one column
def _decode_spec(decoder: ImageDecoder, on_error: OnError) -> UdfSpec:
    return UdfSpec(
        name="decode_image",
        target=Target(decoder, is_batch=True),
        return_dtype=decoder.dtype,
        batch_size="paced",
        resources=Resources(use_process=False),  # decoders release the GIL
        policy=Policy(on_error),
        builtin=Builtin(check=ENCODED.check, has_cut=True),
    )


def transfer_call(
    name: str,
    target: Target,
    dtype: DataType,
    *args: Any,
    max_connections: int = 32,
    on_error: str = "raise",
    timeout_s: float | None = None,
    at_once: str | None = None,
) -> Expression:
    """Return the call of an async function of files, with at most ``max_connections`` calls at once."""
    check_whole(name, "max_connections", max_connections, 1)
    check_positive(name, "timeout", timeout_s)
    task_rows = int(TRANSFERS_PER_CONNECTION * max_connections) + 1
    spec = UdfSpec(
        name=name,
        target=replace(target, is_async=True),
        return_dtype=dtype,
        resources=Resources(max_workers=max_connections),
        policy=Policy(on_error=error_policy(name, on_error), timeout_s=timeout_s),
        builtin=Builtin(task_nbytes=piece_nbytes(TRANSFER_NBYTES), task_rows=task_rows, at_once=at_once),
    )
    return Expression(UdfCall(spec, tuple(map(to_expr, args))))
