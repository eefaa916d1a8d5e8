"""Run functions in their own processes, forked from a server that has imported Penstock: a start takes milliseconds."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

PRELOADED = [
    *("__main__", "penstock.io.formats.json", "penstock.io.formats.parquet", "penstock.jobs.write_job"),
    *("penstock.runners.local", "penstock.ai.prompt", "aiohttp", "uvloop", "pandas", "pyarrow.parquet"),
]


class ForkedProcess:
    """A process that runs a function of a module, with the environment of this process."""

    def __init__(self, function: Callable[..., None], *args: Any, **options: Any) -> None:
        self._stderr = tempfile.NamedTemporaryFile("r", suffix=".stderr")  # noqa: SIM115, closed by ended()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        given = self._stderr.name, dict(os.environ), function, args, options
        self._process = context.Process(target=_run, args=given)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def ended(self, timeout_s: float = 60.0) -> tuple[int, str]:
        """Wait for the end, and return the exit code and the text on stderr."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            self.kill()
            self._process.join()
            raise TimeoutError(f"The process did not end within {timeout_s:g} s")
        with self._stderr as file:
            return code, file.read()


def exit_code(function: Callable[..., None], *args: Any, timeout_s: float = 60.0) -> int:
    """Run a function to its end, and return the exit code of its process."""
    return ForkedProcess(function, *args).ended(timeout_s)[0]


def _run(
    stderr: str,
    environment: Mapping[str, str],
    function: Callable[..., None],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND), 2)
    os.environ.clear()
    os.environ.update(environment)
    function(*args, **options)
