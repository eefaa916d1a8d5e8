"""The error of a user's function: a ``UdfError`` that is also an instance of the class that the function raised."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.errors import QueryCancelledError, UdfError, WorkerDiedError

_IS_HEAP_TYPE = 1 << 9  # a flag of classes made by a class statement
_SIGNALS = (StopIteration, StopAsyncIteration, QueryCancelledError, WorkerDiedError)
"""Classes with a special meaning to generators or to the engine."""


def udf_error(message: str, cause: BaseException) -> UdfError:
    """Return a UdfError that an ``except`` clause for the class of ``cause`` also catches.

    It has the ``args`` and attributes of ``cause``; in another process it keeps the class and the message. If the class
    refuses that, it is a plain UdfError.

    >>> error = udf_error("UDF 'f' failed", KeyError("x"))
    >>> isinstance(error, KeyError), str(error)
    (True, "UDF 'f' failed")
    """
    if isinstance(cause, Exception) and not isinstance(cause, _SIGNALS):
        with suppress(Exception):  # a class may refuse subclasses
            return _combined(message, cause)
    return UdfError(message)


def _combined(message: str, cause: Exception) -> UdfError:
    kind = type(cause)
    base = _builtin_base(kind)
    _, args, *state = base.__reduce__(cause)
    both = _class_of(message, kind)
    error: UdfError = base.__new__(both, *args)  # the class's own constructor may take any arguments
    base.__init__(error, *args)
    base.__setstate__(
        error, {name: value for name, value in (state[0] if state else {}).items() if name != "__notes__"}
    )
    return error


def _class_of(message: str, kind: type[Exception]) -> Any:
    """Return the class of an error with this message that is both a UdfError and a ``kind``."""
    return type(
        UdfError.__name__,
        (kind,) if issubclass(kind, UdfError) else (UdfError, kind),
        {
            "__module__": UdfError.__module__,
            "__str__": lambda error: message,  # not the class's own constructor, which may need other arguments
            "__reduce__": lambda error: (_restored, (message, kind)),
        },
    )


def _restored(message: str, kind: type[Exception]) -> UdfError:
    try:
        error: UdfError = _builtin_base(kind).__new__(_class_of(message, kind), message)
    except Exception:  # such as a group, which needs its errors
        return UdfError(message)
    return error


def _builtin_base(kind: type) -> Any:
    return next(each for each in kind.__mro__ if not each.__flags__ & _IS_HEAP_TYPE)
