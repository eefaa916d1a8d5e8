"""Parts of a benchmark in processes of their own, and a table of the results.

`main` makes the model and the data once, runs each part with `python -m MODULE --part NAME`, and prints a table and one
line of JSON. A part prints its figures as JSON in its last line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Figures = dict[str, float]
Run = Callable[..., None]
"""Takes the inputs, the output and, if it is profiled, a provider."""


@dataclass(frozen=True)
class Place:
    """The files of a benchmark: a model, the input, and a few rows of it to measure the start-up with."""

    folder: Path
    num_rows: int
    variant: str = ""
    shape: str = ""

    @property
    def model(self) -> str:
        return str(self.folder / "model")

    @property
    def input(self) -> str:
        return str(self.folder / "input.parquet")

    @property
    def small_input(self) -> str:
        return str(self.folder / "small.parquet")

    def output(self, name: str) -> str:
        return str(self.folder / name)


def main(
    module: str,
    num_rows: int,
    prepare: Callable[[Place], None],
    parts: Mapping[str, Callable[[Place], Figures]],
    argv: list[str] | None = None,
    variants: Sequence[str] = ("",),
    shapes: Sequence[str] = ("",),
    shape_part: str = "",
) -> None:
    """Run the parts. With ``--shape``, which gives the model its shape, only ``shape_part`` runs by default."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--rows", type=int, default=num_rows)
    parser.add_argument("--folder", type=Path, help="keep the model and the data here, and use them again")
    parser.add_argument("--part", choices=parts, action="append", help="run only this part; may be given several times")
    parser.add_argument("--variant", choices=variants, default=variants[0], help="of the data")
    if shape_part:
        parser.add_argument("--shape", choices=shapes, help=f"of the model; runs the part {shape_part!r} by default")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    has_shape = getattr(given, "shape", None) is not None
    shape = given.shape if has_shape else shapes[0]
    if given.here:
        print(json.dumps(parts[given.part[0]](Place(given.folder, given.rows, given.variant, shape))))
        return
    with contextlib.ExitStack() as closing:
        folder = given.folder or Path(closing.enter_context(tempfile.TemporaryDirectory()))
        place = Place(folder, given.rows, given.variant, shape)
        if not Path(place.small_input).exists():
            folder.mkdir(parents=True, exist_ok=True)
            prepare(place)
        found = {
            part: _in_process(module, part, place) for part in given.part or ([shape_part] if has_shape else parts)
        }
    print(_table(found))
    print(json.dumps({"benchmark": module, "variant": given.variant, "shape": shape, "rows": given.rows, **found}))


def _in_process(module: str, part: str, place: Place) -> Figures:
    command = [sys.executable, "-m", module, "--here", "--part", part, "--folder", str(place.folder)]
    command += ["--rows", str(place.num_rows), "--variant", place.variant]
    command += ["--shape", place.shape] if place.shape else []
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env)
    if done.returncode:
        print(f"{part} ended with exit code {done.returncode}", file=sys.stderr)
        return {}
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _table(found: Mapping[str, Figures]) -> str:
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    lines = [f"{'':24}" + "".join(f"{name:>20}" for name in names)]
    for part, figures in found.items():
        cells = (f"{figures[name]:>20,.2f}" if name in figures else f"{'':>20}" for name in names)
        lines.append(f"{part:24}" + "".join(cells))
    return "\n".join(lines)


class RowTimes:
    """A subscriber that notes when the rows of each query were ready to be written."""

    def __init__(self) -> None:
        self._stage: int | None = None
        self.outputs: list[tuple[float, int]] = []  # seconds since the epoch, and rows so far

    def on_event(self, event: Any) -> None:
        from penstock.events import events

        if isinstance(event, events.QueryStarted):
            self._stage, self.outputs = event.stages[-1].writes, []
        elif isinstance(event, events.BundleProduced) and event.stage == self._stage and event.num_rows:
            before = self.outputs[-1][1] if self.outputs else 0
            self.outputs.append((time.time(), before + event.num_rows))

    def rate_after(self, share: float) -> float:
        """Return the rows per second after the first ``share`` of the rows."""
        end_s, num_rows = self.outputs[-1]
        start_s, num_before = next(each for each in self.outputs if each[1] >= share * num_rows)
        return (num_rows - num_before) / max(end_s - start_s, 1e-9)

    def rates(self, every_s: float) -> list[float]:
        """Return the rows per second in each ``every_s`` seconds after the first output."""
        times, rows = zip(*self.outputs, strict=True)
        edges = np.arange(times[0], times[-1], every_s)
        return list(np.diff(np.interp(edges, times, rows)) / every_s)


def start_seconds(place: Place, run: Run) -> list[float]:
    """Return the times for a few rows, in which a model is loaded. The first run also reads files from disk."""
    return [seconds_of(run, [place.small_input], place.output(f"small-{number}")) for number in range(2)]


def seconds_of(run: Run, inputs: list[str], output: str) -> float:
    began = time.perf_counter()
    run(inputs, output)
    return time.perf_counter() - began


def penstock_figures(place: Place, run: Run, num_runs: int = 5, num_inputs: int = 1) -> Figures:
    """Return the figures of ``run(inputs, output)``, which loads the model each time: medians, and the extreme rates.

    The rate after the start is that of the last three quarters of the rows, by the times at which the engine gets them:
    while the model is loaded, rows are read and decoded, so the first ones would flatter the pipeline. The use of the
    GPU is taken in runs of its own, since the profiler slows them down, from the first rows to the last ones.
    """
    import penstock as ps
    from benchmarks.gpu.kernel_times import ProfiledTransformers, busy_percent

    times = RowTimes()
    ps.attach_subscriber(times)
    inputs, output = [place.input] * num_inputs, place.output("out")
    starts = start_seconds(place, run)
    totals, rates, busy = [], [], []
    for _ in range(num_runs):
        totals.append(seconds_of(run, inputs, output))
        rates.append(times.rate_after(0.25))
        print(f"{rates[-1]:,.0f} rows/s after the start, {totals[-1]:.1f} s", file=sys.stderr)
    for _ in range(num_runs if device() == "cuda" else 0):
        kernels = Path(place.output("kernels.json"))
        run(inputs, output, ProfiledTransformers(path=str(kernels)))
        busy.append(busy_percent(json.loads(kernels.read_text()), times.outputs[0][0], times.outputs[-1][0]))
        print(f"GPU busy {busy[-1]:.0f} %, {times.rate_after(0.25):,.0f} rows/s under the profiler", file=sys.stderr)
    return {
        "first start s": starts[0],
        "start s": starts[1],
        "total s": statistics.median(totals),
        "rows/s after start": statistics.median(rates),
        "least rows/s": min(rates),
        "most rows/s": max(rates),
        **({"GPU busy %": statistics.median(busy), "least busy %": min(busy)} if busy else {}),
    }


def difference_figures(place: Place, run: Run) -> Figures:
    """Return the figures of an engine without events: its rate is that between one input and three times the input."""
    starts = start_seconds(place, run)
    total_s = seconds_of(run, [place.input], place.output("out"))
    three_s = seconds_of(run, [place.input] * 3, place.output("three"))
    return {
        "first start s": starts[0],
        "start s": starts[1],
        "total s": total_s,
        "rows/s after start": 2 * place.num_rows / (three_s - total_s),
    }


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
