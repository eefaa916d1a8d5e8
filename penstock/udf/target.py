"""From a spec to something to call: built in the worker, once."""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from penstock.errors import ProviderUnusableError, UdfError
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.udf.failures import CALL_FAILURES
from penstock.udf.ownership import unshared

log = logging.getLogger("penstock.udf")


def built_target(spec: UdfSpec | BatchSpec) -> tuple[Callable[..., Any], Any]:
    """Return the callable of a spec, and the instance behind it, None for a plain function."""
    target = spec.target
    if not target.is_class:
        return target.function, None
    try:
        instance = target.function(*target.init_args, **dict(target.init_kwargs))
    except ProviderUnusableError:  # a key that is missing says so itself, and how to give it
        raise
    except CALL_FAILURES as exc:
        name = target.function.__name__
        raise UdfError(f"{name}() failed when a worker built its instance: {type(exc).__name__}: {exc}") from exc
    return method_of(instance, spec), instance


def method_of(instance: Any, spec: UdfSpec | BatchSpec) -> Callable[..., Any]:
    """Return what of an instance is called."""
    method: Callable[..., Any] = getattr(instance, spec.target.method or "__call__")
    return method


def close_instance(instance: Any) -> Any:
    """Call ``close()`` of a user's object if it has one, and return what it gives, to be awaited where it is async.

    What it raises is logged: by then the results are there, and an error must not be hidden by another.
    """
    close = getattr(instance, "close", None)
    if not callable(close):
        return None
    try:
        closing = close()
    except Exception:
        _log_close(instance)
        return None
    return _awaited_close(instance, closing) if inspect.isawaitable(closing) else closing


async def _awaited_close(instance: Any, closing: Awaitable[Any]) -> None:
    try:
        await closing
    except Exception:
        _log_close(instance)


def _log_close(instance: Any) -> None:
    log.warning("%s.close() failed", type(instance).__name__, exc_info=True)


def begun(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a generator function as one that runs to its first item: what fails until then does so in the call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, Iterator):
            return result
        return _resumed(list(itertools.islice(result, 1)), result)

    return call


def _resumed(begin: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from begin
        yield from rest
    finally:
        close = getattr(rest, "close", None)  # it may be a plain iterator
        if callable(close):
            close()


def finish_closing(closing: Any) -> None:
    """Run an async ``close()`` of an object whose methods are not, on a loop of its own; the caller may be in one."""
    if not inspect.isawaitable(closing):
        return
    import asyncio

    async def wait() -> None:
        await closing

    thread = threading.Thread(target=lambda: asyncio.run(wait()), name="penstock-close")
    thread.start()
    thread.join()


def drained(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a generator function as one that runs to its end: what fails does so in the call, and can be retried."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return iter(list(unshared(result))) if isinstance(result, Iterator) else result

    return call


def drained_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function, or an async generator run to its end, as a function to await."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if inspect.isasyncgen(result):
            return iter([unshared(item) async for item in result])
        result = await result
        return iter(list(unshared(result))) if isinstance(result, Iterator) else result

    return call
