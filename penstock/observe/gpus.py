"""The use of GPUs while a query runs, as nvidia-smi reports it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.observe.events import GpuUse

INTERVAL_MS = 200
"""Also the most that the end of a query waits: nvidia-smi ends only between two samples."""

MAX_READ_NBYTES = 1 << 20  # at once; a sample has about 30
FIELDS = ("index", "utilization.gpu", "memory.used", "memory.total", "power.draw")


@contextlib.contextmanager
def sampled_gpus(gpus: Sequence[str]) -> Iterator[Callable[[], tuple[GpuUse, ...]]]:
    """Sample the GPUs within the context. Yield a function that returns their use so far, if there is nvidia-smi."""
    program = shutil.which("nvidia-smi") if gpus else None
    if program is None:
        yield tuple
        return
    command = [program, f"--id={','.join(gpus)}", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    with tempfile.TemporaryFile() as samples:
        process = subprocess.Popen([*command, f"--loop-ms={INTERVAL_MS}"], stdout=samples, stderr=subprocess.DEVNULL)
        totals, position = GpuTotals(), 0

        def uses() -> tuple[GpuUse, ...]:
            nonlocal position
            lines, end, _ = os.pread(samples.fileno(), MAX_READ_NBYTES, position).rpartition(b"\n")
            position += len(lines) + len(end)
            for line in lines.decode(errors="replace").splitlines():
                totals.add(line)
            return totals.uses()

        try:
            yield uses
        finally:
            process.terminate()
            process.wait()


class GpuTotals:
    """Sums of the samples of each GPU.

    >>> totals = GpuTotals()
    >>> for line in ("0, 90, 1000, 9000, 300", "0, 70, 3000, 9000, [N/A]", "0, 9"):
    ...     totals.add(line)
    >>> totals.uses()
    (GpuUse(gpu='0', busy=0.8, memory_bytes=3145728000, total_bytes=9437184000, power_w=300.0, busy_now=0.7),)
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Sums] = {}

    def add(self, line: str) -> None:
        """Add a sample: the fields of a GPU. Other lines are ignored."""
        index, *values = (value.strip() for value in line.split(","))
        if len(values) != len(FIELDS) - 1:
            return
        busy, used, total, power = map(_number, values)
        if busy is not None and used is not None and total is not None:
            self._gpus.setdefault(index, _Sums()).add(busy / 100, int(used) << 20, int(total) << 20, power)

    def uses(self) -> tuple[GpuUse, ...]:
        """Return the use of each GPU so far."""
        return tuple(sums.use(index) for index, sums in self._gpus.items())


@dataclass(slots=True)
class _Sums:
    num_samples: int = 0
    busy: float = 0.0
    busy_now: float = 0.0
    memory_bytes: int = 0
    total_bytes: int = 0
    power_w: float = 0.0
    num_powers: int = 0

    def add(self, busy: float, used: int, total: int, power: float | None) -> None:
        self.num_samples += 1
        self.busy += busy
        self.busy_now = busy
        self.memory_bytes, self.total_bytes = max(self.memory_bytes, used), total
        if power is not None:
            self.power_w += power
            self.num_powers += 1

    def use(self, gpu: str) -> GpuUse:
        power = self.power_w / self.num_powers if self.num_powers else None
        mean = self.busy / self.num_samples
        return GpuUse(gpu, mean, self.memory_bytes, self.total_bytes, power, self.busy_now)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # such as [N/A]
        return None
