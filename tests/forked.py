"""Run functions in their own processes, forked from a server that has imported Penstock: a start takes milliseconds."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any

PRELOADED = ["__main__", "penstock.io.formats.parquet", "penstock.jobs.write", "penstock.engine.runners.local"]


def exit_code(function: Callable[..., None], *args: Any, timeout_s: float = 60.0) -> int:
    """Run a function of a module in a process with the environment of this one, and return its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_run, args=(dict(os.environ), function, args))
    process.start()
    process.join(timeout_s)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{function.__name__} did not end within {timeout_s:g} s")
    process.close()
    return code


def _run(environment: Mapping[str, str], function: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    function(*args)
