"""The error of a user's function: a ``UdfError`` that is also an instance of the class that the function raised."""

from __future__ import annotations

import pickle
import types
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import QueryCancelledError, UdfError, WorkerDiedError

_IS_HEAP_TYPE = 1 << 9  # a flag of classes made by a class statement
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
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
    parts = _Parts.of(cause)
    kind = type(cause)
    both = type(
        UdfError.__name__,
        (kind,) if issubclass(kind, UdfError) else (UdfError, kind),
        {
            "__module__": UdfError.__module__,
            "__str__": lambda error: message,  # not that of the class, which may need its own arguments
            "__reduce__": lambda error: (_restored, (message, parts.packed())),
        },
    )
    error: UdfError = replace(parts, kind=both).exception()
    return error


def _restored(message: str, packed: bytes) -> UdfError:
    cause = pickle.loads(packed).exception()
    error = udf_error(message, cause)
    error.__cause__ = cause
    return error


@dataclass(frozen=True, slots=True)
class _Parts:
    """An exception as data. It is made again without its constructor, which may take any arguments."""

    kind: Any
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    exceptions: tuple[Any, ...]  # of a group: as they are, or as parts

    @classmethod
    def of(cls, exc: BaseException) -> _Parts:
        attributes = {name: value for name, value in vars(exc).items() if name != "__notes__"}
        for base in type(exc).__mro__:
            for name, descriptor in vars(base).items():
                if isinstance(descriptor, _DESCRIPTORS) and not name.startswith("__") and name != "args":
                    with suppress(Exception):  # the value may be missing
                        attributes[name] = getattr(exc, name)
        return cls(type(exc), exc.args, attributes, tuple(getattr(exc, "exceptions", ())))

    def exception(self) -> Any:
        base = self.kind
        while base.__flags__ & _IS_HEAP_TYPE:
            base = base.__base__
        if issubclass(base, BaseExceptionGroup):
            exceptions = [each.exception() if isinstance(each, _Parts) else each for each in self.exceptions]
            made = base.__new__(self.kind, self.args[0], exceptions)
        else:
            made = base.__new__(self.kind)
            made.args = self.args
        for name, value in self.attributes.items():
            with suppress(Exception):  # it may be read-only
                setattr(made, name, value)
        return made

    def packed(self) -> bytes:
        import cloudpickle  # for classes and values of a script or a notebook

        packed: bytes = cloudpickle.dumps(self._picklable())
        return packed

    def _picklable(self) -> _Parts:
        """Return the parts without values that cannot be pickled; such arguments become text."""
        args = tuple(value if _is_picklable(value) else repr(value) for value in self.args)
        attributes = {name: value for name, value in self.attributes.items() if _is_picklable(value)}
        return _Parts(self.kind, args, attributes, tuple(_Parts.of(each)._picklable() for each in self.exceptions))


def _is_picklable(value: Any) -> bool:
    import cloudpickle

    with suppress(Exception):
        pickle.loads(cloudpickle.dumps(value))
        return True
    return False
