"""Run a command in its own process; measure its wall time and the peak memory of its whole process tree.

Memory is PSS (each page shared by n processes counts 1/n), so forked workers and Ray's object store are counted once.
Linux only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_EVERY_S = 0.02
SAMPLER_SHARE = 0.1  # the sampler shares the machine with what it measures: at most this part of one core
OUTPUT_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Measurement:
    returncode: int
    timed_out: bool
    wall_s: float
    peak_mb: float
    num_samples: int
    output_tail: str


def measure(command: list[str], env: dict[str, str], cwd: Path, timeout_s: float) -> Measurement:
    """Run the command to its end, or to the timeout, and leave none of its processes behind."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        watch = TreeWatch(process.pid, timeout_s)
        watch.start()
        process.wait()
        wall_s = time.perf_counter() - start
        watch.finish()
        output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_TAIL))
        tail = output.read().decode(errors="replace").strip()
    return Measurement(process.returncode, watch.timed_out, wall_s, watch.peak_bytes / 1e6, watch.num_samples, tail)


class TreeWatch(threading.Thread):
    """Samples the memory of a process and its descendants, and kills them at the timeout."""

    def __init__(self, pid: int, timeout_s: float) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.num_samples = 0
        self.timed_out = False
        self._root = psutil.Process(pid)
        self._deadline = time.monotonic() + timeout_s
        self._seen: set[psutil.Process] = {self._root}
        self._is_over = threading.Event()

    def run(self) -> None:
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            start = time.monotonic()
            self._sample()
            pause_s = max(SAMPLE_EVERY_S, (time.monotonic() - start) / SAMPLER_SHARE)
            if start > self._deadline:
                self.timed_out = True
                self._kill()
                return

    def finish(self) -> None:
        """Stop sampling, give descendants a moment to end by themselves, and kill the others."""
        self._is_over.set()
        self.join()
        psutil.wait_procs([p for p in self._seen if p != self._root], timeout=5)
        self._kill()

    def _sample(self) -> None:
        with contextlib.suppress(psutil.Error):
            self._seen.update(self._root.children(recursive=True))
        # A descendant whose parent has ended is no longer in the tree but still counts.
        self._seen = {process for process in self._seen if process.is_running()}
        self.num_samples += 1
        self.peak_bytes = max(self.peak_bytes, sum(pss(process.pid) for process in self._seen))

    def _kill(self) -> None:
        for process in self._seen:
            with contextlib.suppress(psutil.Error):  # psutil refuses to kill a process id that was given out again
                process.kill()


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes; 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return next((int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:")), 0)
    except (OSError, ValueError):
        return 0
