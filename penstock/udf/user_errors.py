"""The error of a user's function: a ``UdfError`` that is also an instance of the class that the function raised."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

from penstock.errors import QueryCancelledError, UdfError, WorkerDiedError

_IS_HEAP_TYPE = 1 << 9  # a flag of classes made by a class statement
_SIGNALS = (StopIteration, StopAsyncIteration, QueryCancelledError, WorkerDiedError)
"""Classes that mean something else to a generator or to the engine than to the function."""


def udf_error(message: str, cause: BaseException) -> UdfError:
    """Return a UdfError that an ``except`` clause for the class of ``cause`` also catches.

    It has the ``args`` and attributes of ``cause``. If the class refuses that, it is a plain UdfError.

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
    both = type(
        UdfError.__name__,
        (kind,) if issubclass(kind, UdfError) else (UdfError, kind),
        {
            "__module__": UdfError.__module__,
            "__str__": lambda error: message,  # not that of the class, which may need its own arguments
            "__reduce__": lambda error: (_restored, (message, _packed(cause))),
        },
    )
    error: UdfError = _made(both, *_parts(cause))
    return error


def _parts(cause: Exception) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a built-in exception, and the attributes that its subclasses set."""
    _, args, *state = _builtin_base(type(cause)).__reduce__(cause)
    return args, {name: value for name, value in (state[0] if state else {}).items() if name != "__notes__"}


def _made(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Return an exception without calling its own constructor, which may take any arguments."""
    base = _builtin_base(kind)
    made = base.__new__(kind, *args)
    base.__init__(made, *args)
    base.__setstate__(made, attributes)
    return made


def _builtin_base(kind: type) -> Any:
    return next(each for each in kind.__mro__ if not each.__flags__ & _IS_HEAP_TYPE)


def _packed(cause: Exception) -> bytes:
    """Pickle an exception without attributes that cannot be pickled; such arguments become text."""
    import cloudpickle  # for classes and values of a script or a notebook

    args, attributes = _parts(cause)
    kept = {name: value for name, value in attributes.items() if _is_picklable(value)}
    parts = type(cause), tuple(value if _is_picklable(value) else repr(value) for value in args), kept
    return bytes(cloudpickle.dumps(parts))


def _restored(message: str, packed: bytes) -> UdfError:
    try:
        cause = _made(*pickle.loads(packed))
    except Exception:  # such as a group, one of whose errors cannot be pickled
        return UdfError(message)
    error = udf_error(message, cause)
    error.__cause__ = cause
    return error


def _is_picklable(value: Any) -> bool:
    import cloudpickle

    with suppress(Exception):
        pickle.loads(cloudpickle.dumps(value))
        return True
    return False
