"""The use of GPUs while a query runs, as nvidia-smi reports it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from penstock.observe.events import GpusSampled, GpuUse
from penstock.protocols import Subscriber

INTERVAL_MS = 200
"""Also the most that the end of a query waits: nvidia-smi ends only between two samples."""

FIELDS = ("index", "utilization.gpu", "memory.used", "memory.total", "power.draw")


@contextlib.contextmanager
def sampled_gpus(gpus: Sequence[str], subscribers: Sequence[Subscriber]) -> Iterator[None]:
    """Sample the GPUs within the context, and publish their use at its end. Does nothing without nvidia-smi."""
    program = shutil.which("nvidia-smi") if gpus else None
    if program is None:
        yield
        return
    command = [program, f"--id={','.join(gpus)}", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    with tempfile.TemporaryFile("w+") as samples:
        process = subprocess.Popen([*command, f"--loop-ms={INTERVAL_MS}"], stdout=samples, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
            samples.seek(0)
            if uses := gpu_uses(samples):
                for subscriber in subscribers:
                    subscriber.on_event(GpusSampled(uses))


def gpu_uses(lines: Iterator[str]) -> tuple[GpuUse, ...]:
    """Return the use of each GPU, given a line of numbers for each sample. Other lines are ignored.

    >>> gpu_uses(iter(["0, 90, 1000, 9000, 300", "0, 70, 3000, 9000, [N/A]", "0, 9"]))
    (GpuUse(gpu='0', busy=0.8, memory_bytes=3145728000, total_bytes=9437184000, power_w=300.0),)
    """
    samples: dict[str, list[list[float | None]]] = {}
    for line in lines:
        index, *values = (value.strip() for value in line.split(","))
        if len(values) == len(FIELDS) - 1:
            samples.setdefault(index, []).append([_number(value) for value in values])
    found = []
    for index, rows in samples.items():
        busy, used, total, power = (
            [value for value in column if value is not None] for column in zip(*rows, strict=True)
        )
        if busy and used and total:
            mean_power = sum(power) / len(power) if power else None
            found.append(
                GpuUse(index, sum(busy) / len(busy) / 100, int(max(used)) << 20, int(max(total)) << 20, mean_power)
            )
    return tuple(found)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # such as [N/A]
        return None
