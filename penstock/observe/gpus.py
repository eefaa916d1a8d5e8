"""The use of GPUs while a query runs, as nvidia-smi reports it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.events.events import GpuUse

INTERVAL_MS = 200
"""The time between two samples. The end of a query may wait as long, because nvidia-smi ends only between samples."""

MAX_READ_NBYTES = 1 << 20  # at once; a sample has about 30
FIELDS = ("utilization.gpu", "memory.used", "memory.total", "power.draw")


@contextlib.contextmanager
def sampled_gpus(gpus: Sequence[str]) -> Iterator[Callable[[], tuple[GpuUse, ...]]]:
    """Sample the GPUs within the context. Yield a function that returns their use so far, if there is nvidia-smi."""
    program = shutil.which("nvidia-smi") if gpus else None
    if program is None:
        yield tuple
        return
    command = [
        program,
        f"--id={','.join(gpus)}",
        f"--query-gpu={','.join(('index', *FIELDS))}",
        "--format=csv,noheader,nounits",
    ]
    with tempfile.TemporaryFile() as samples:
        process = subprocess.Popen([*command, f"--loop-ms={INTERVAL_MS}"], stdout=samples, stderr=subprocess.DEVNULL)
        totals: dict[str, GpuTotals] = {}
        position = 0

        def uses() -> tuple[GpuUse, ...]:
            nonlocal position
            lines, end, _ = os.pread(samples.fileno(), MAX_READ_NBYTES, position).rpartition(b"\n")
            position += len(lines) + len(end)
            for line in lines.decode(errors="replace").splitlines():
                index, *values = line.split(", ")
                if len(values) == len(FIELDS):
                    totals.setdefault(index, GpuTotals(index)).add(*values)
            return tuple(each.use() for each in totals.values() if each.num_samples)

        try:
            yield uses
        finally:
            process.terminate()
            process.wait()


@dataclass(slots=True)
class GpuTotals:
    """Sums of the samples of one GPU.

    >>> totals = GpuTotals("0")
    >>> for sample in (("90", "1000", "9000", "300"), ("70", "3000", "9000", "[N/A]"), ("[N/A]", "", "", "")):
    ...     totals.add(*sample)
    >>> totals.use()
    GpuUse(gpu='0', busy=0.8, memory_bytes=3145728000, total_bytes=9437184000, power_w=300.0, busy_now=0.7)
    """

    gpu: str
    num_samples: int = 0
    busy: float = 0.0
    busy_now: float = 0.0
    memory_bytes: int = 0
    total_bytes: int = 0
    power_w: float = 0.0
    num_powers: int = 0

    def add(self, *fields: str) -> None:
        """Add a sample, the values of FIELDS. A sample without the use or the memory is ignored."""
        busy, used, total, power = map(_number, fields)
        if busy is None or used is None or total is None:
            return
        self.num_samples += 1
        self.busy_now = busy / 100
        self.busy += self.busy_now
        self.memory_bytes, self.total_bytes = max(self.memory_bytes, int(used) << 20), int(total) << 20
        if power is not None:
            self.power_w += power
            self.num_powers += 1

    def use(self) -> GpuUse:
        """Return the use so far, after at least one sample."""
        power = self.power_w / self.num_powers if self.num_powers else None
        mean = self.busy / self.num_samples
        return GpuUse(self.gpu, mean, self.memory_bytes, self.total_bytes, power, self.busy_now)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # such as [N/A]
        return None
