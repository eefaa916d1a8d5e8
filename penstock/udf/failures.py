"""A row on which a function failed, as data: what it was given, as JSON, and what was raised."""

from __future__ import annotations

import base64
import json
import math
import os
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.observe.events import RowError

CALL_FAILURES: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""What a call of a user's function may fail with. ``sys.exit()`` in one does not end the user's program."""

MAX_BINARY_NBYTES = 64 * 1024  # of an image or an array; a longer one is described
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def row_error_of(operator: str, values: Mapping[str, Any], exc: BaseException, row: int | None = None) -> RowError:
    """Return the record of a failure; the traceback begins where penstock calls the user's code."""
    return RowError(operator, as_json(values), type(exc).__name__, _encodable(str(exc)), _traceback_text(exc), row)


def as_json(values: Mapping[str, Any]) -> str:
    """Return values by name as JSON, whatever they are.

    >>> as_json({"text": "é", "score": float("nan"), "raw": b"ab"})
    '{"text": "é", "score": null, "raw": "YWI="}'
    """
    return json.dumps(_plain(values), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: what it has no kind for is text."""
    match value:
        case None | bool() | int() | str():
            return _encodable(value) if isinstance(value, str) else value
        case float():
            return value if math.isfinite(value) else None
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return base64.b64encode(data).decode() if len(data) <= MAX_BINARY_NBYTES else f"<{len(data)} bytes>"
        case Mapping():
            return {_encodable(str(key)): _plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case np.generic():
            return _plain(value.item()) if not isinstance(value.item(), np.generic) else str(value)
        case np.ndarray():
            is_short = value.nbytes <= MAX_BINARY_NBYTES
            return _plain(value.tolist()) if is_short else f"<array of {value.dtype}, shape {value.shape}>"
        case _:
            return _encodable(value.isoformat() if hasattr(value, "isoformat") else repr(value))


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which neither JSON nor Arrow can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _traceback_text(exc: BaseException) -> str:
    frames = exc.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frames = frames.tb_next
    return _encodable("".join(traceback.format_exception(type(exc), exc, frames or exc.__traceback__)))
