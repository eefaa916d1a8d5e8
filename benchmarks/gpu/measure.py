"""Parts of a benchmark in processes of their own, samples of the GPU, and a table of the results.

`main` makes the model and the data once, runs each part with `python -m MODULE --part NAME`, and prints a table and one
line of JSON. A part prints its figures as JSON in its last line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Figures = dict[str, float]


@dataclass(frozen=True)
class Place:
    """The files of a benchmark: a model, the input, and a few rows of it to measure the start-up with."""

    folder: Path
    num_rows: int
    variant: str = ""

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
) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--rows", type=int, default=num_rows)
    parser.add_argument("--folder", type=Path, help="keep the model and the data here, and use them again")
    parser.add_argument("--part", choices=parts, action="append", help="run only this part; may be given several times")
    parser.add_argument("--variant", choices=variants, default=variants[0], help="of the data")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.here:
        print(json.dumps(parts[given.part[0]](Place(given.folder, given.rows, given.variant))))
        return
    with contextlib.ExitStack() as closing:
        folder = given.folder or Path(closing.enter_context(tempfile.TemporaryDirectory()))
        place = Place(folder, given.rows, given.variant)
        if not Path(place.small_input).exists():
            folder.mkdir(parents=True, exist_ok=True)
            prepare(place)
        found = {part: _in_process(module, part, place) for part in given.part or parts}
    print(_table(found))
    print(json.dumps({"benchmark": module, "variant": given.variant, "rows": given.rows, **found}))


def _in_process(module: str, part: str, place: Place) -> Figures:
    command = [sys.executable, "-m", module, "--here", "--part", part, "--folder", str(place.folder)]
    command += ["--rows", str(place.num_rows), "--variant", place.variant]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
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


class GpuSamples:
    """The utilisation of the first GPU in percent, as nvidia-smi reports it ten times a second; empty without one."""

    def __init__(self) -> None:
        self.values: list[float] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[GpuSamples]:
        command = [
            "nvidia-smi",
            "-i",
            "0",
            "--query-gpu=utilization.gpu",
            "--format=csv,noheader,nounits",
            "-lms",
            "100",
        ]
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            yield self
            return
        thread = threading.Thread(target=self._read, args=(process,))
        thread.start()
        try:
            yield self
        finally:
            process.terminate()
            process.wait()
            thread.join()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                self.values.append(float(line))

    def busy_percent(self) -> float:
        """Return the mean while a run computes, from the first to the last sample of at least 20 %.

        The load of a model shows as up to 9 %, the end of a process as up to 18 %.
        """
        busy = [number for number, value in enumerate(self.values) if value >= 20]
        during = self.values[busy[0] : busy[-1] + 1] if busy else []
        return sum(during) / len(during) if during else 0.0


def pipeline_figures(place: Place, run: Callable[[list[str], str], None]) -> Figures:
    """Return the figures of ``run(inputs, output)``, which loads the model each time.

    The time for a few rows is the start-up: it is measured twice, because the first run also reads files from disk. The
    rate after the start comes from a run over the input and one over three times the input: while the model is loaded,
    rows are read and decoded, so the time after the start-up alone would flatter the pipeline.
    """
    starts = []
    for number in range(2):
        began = time.perf_counter()
        run([place.small_input], place.output(f"small-{number}"))
        starts.append(time.perf_counter() - began)
    began = time.perf_counter()
    run([place.input], place.output("out"))
    total_s = time.perf_counter() - began
    with GpuSamples().running() as samples:
        began = time.perf_counter()
        run([place.input] * 3, place.output("three"))
        three_s = time.perf_counter() - began
    return {
        "first start s": starts[0],
        "start s": starts[1],
        "total s": total_s,
        "rows/s": place.num_rows / total_s,
        "rows/s after start": 2 * place.num_rows / (three_s - total_s),
        "GPU busy %": samples.busy_percent(),
    }


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
