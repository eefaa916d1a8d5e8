"""How much memory a process and those it started take, sampled from outside while they run. Linux only.

``rss`` is what the kernel says of each process, summed: a page that several of them share counts as often. ``pss``
counts such a page 1/n in each of n. Both miss what lies in an anonymous file that nobody has looked at yet, and batches
travel between processes in such files. ``total`` therefore is the PSS of all else, and each of these files once, in
full. ``root_rss`` is the most that the kernel has seen of the first process itself, between two samples too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """What all processes of a tree took together, in bytes."""

    total: int = 0
    pss: int = 0
    rss: int = 0
    num_processes: int = 0


class PeakMemory(threading.Thread):
    """Samples a process tree every ``every_s`` seconds until it has ended or ``stop`` is called.

    >>> import os
    >>> with PeakMemory(os.getpid()) as peak:
    ...     block = bytearray(b"x" * 50_000_000)
    >>> peak.total > 50_000_000 and peak.rss >= peak.pss and peak.num_processes >= 1
    True
    """

    def __init__(self, pid: int, every_s: float = 0.01) -> None:
        super().__init__(name="peak-memory", daemon=True)
        self.total = self.pss = self.rss = self.root_rss = self.num_processes = self.num_samples = 0
        self.longest_gap_s = 0.0
        self._root = psutil.Process(pid)
        self._every_s = every_s
        self._is_over = threading.Event()

    def __enter__(self) -> PeakMemory:
        self._sample()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __str__(self) -> str:
        counts = {"total": self.total, "pss": self.pss, "rss": self.rss, "root_rss": self.root_rss}
        megabytes = ", ".join(f"{name} {count / 1e6:.0f} MB" for name, count in counts.items())
        return f"{megabytes}; {self.num_processes} processes, {self.num_samples} samples"

    def run(self) -> None:
        last_s = time.monotonic()
        while not self._is_over.wait(self._every_s):
            self._sample()
            now_s = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now_s - last_s)
            last_s = now_s

    def stop(self) -> None:
        """Take a last sample and end."""
        self._is_over.set()
        self.join()
        self._sample()

    def _sample(self) -> None:
        now = tree_memory(self._root)
        self.num_samples += 1
        self.total = max(self.total, now.total)
        self.pss = max(self.pss, now.pss)
        self.rss = max(self.rss, now.rss)
        self.root_rss = max(self.root_rss, high_water(self._root.pid))
        self.num_processes = max(self.num_processes, now.num_processes)


def tree_memory(root: psutil.Process) -> TreeMemory:
    """Return what ``root`` and all its descendants take now; what has ended takes nothing."""
    pids = [root.pid, *descendants(root.pid)]
    files: dict[int, int] = {}
    for pid in pids:
        files.update(anonymous_files(pid))
    found = [rollup for pid in pids if (rollup := process_rollup(pid))]
    own = sum(rollup["Pss"] - rollup["Pss_Shmem"] for rollup in found)
    total = own + sum(files.values())
    return TreeMemory(total, sum(r["Pss"] for r in found), sum(r["Rss"] for r in found), len(found))


def descendants(pid: int) -> list[int]:
    """Return the processes that this one and its descendants have started. (psutil looks at all of the machine.)"""
    found = list[int]()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += map(int, children.read_text().split())
    return found + [each for child in found for each in descendants(child)]


def process_rollup(pid: int) -> dict[str, int]:
    """Return the sums over all mappings of a process, in bytes; of one that has ended, nothing."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {name.rstrip(":"): int(kilobytes) * 1024 for name, kilobytes, _ in map(str.split, lines)}


def high_water(pid: int) -> int:
    """Return the most that a process has taken since it began, with shared pages; of one that has ended, nothing."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def anonymous_files(pid: int) -> dict[int, int]:
    """Return the bytes of the anonymous files that a process has mapped or open, by their inode."""
    files: dict[int, int] = {}
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "/memfd:" in line:
                addresses, _, offset, _, inode, *_ = line.split()
                start, end = (int(address, 16) for address in addresses.split("-"))
                files[int(inode)] = max(files.get(int(inode), 0), int(offset, 16) + end - start)
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/memfd:"):
                    status = os.stat(f"/proc/{pid}/fd/{fd}")
                    files[status.st_ino] = max(files.get(status.st_ino, 0), status.st_blocks * 512)
    except OSError:
        pass  # the process has ended
    return files
