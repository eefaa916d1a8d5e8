"""Workloads: their contract, and the list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ENGINES = ("penstock", "daft", "ray_data", "plain")
ON_RAY = {"penstock_ray": "penstock", "daft_ray": "daft"}  # an engine with its Ray runner, by its own function
PEERS = ("daft", "ray_data", "daft_ray")
METRICS = {"work_s": "work", "wall_s": "whole process", "peak_mb": "peak memory", "unit_us": "microseconds per unit"}


@dataclass(frozen=True, slots=True)
class Target:
    """Penstock's median of ``metric`` must be at most ``at_most`` times that of ``of``, or at most that value.

    ``name`` is the metric in words, where it is one of the workload's own figures.
    """

    metric: str
    at_most: float
    of: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.metric not in METRICS and self.name is None) or (self.of is not None and self.of not in ENGINES):
            raise ValueError(f"{self!r}: metrics are {', '.join(METRICS)}; engines are {', '.join(ENGINES)}")

    def __str__(self) -> str:
        name = self.name or METRICS[self.metric]
        if self.of is None:
            return f"{name} at most {self.at_most:g}"
        if self.at_most < 1 and self.metric != "peak_mb":
            return f"{name} at least {1 / self.at_most:g}x as fast as {self.of}"
        return f"{name} at most {self.at_most:g}x {self.of}'s"


@dataclass(frozen=True, slots=True)
class Workload:
    """One file of `benchmarks/workloads/`, read."""

    name: str
    title: str
    engines: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    min_repeat: int = 1
    once: tuple[str, ...] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    dataset: str | None = None
    num_rows: int = 0
    make_batch: Callable[[Any, int, int], Any] | None = None
    make_file: Callable[[Any, Path, int], None] | None = None
    serving: Callable[[int], AbstractContextManager[dict[str, str]]] | None = None
    tolerance: float = 0.0


def load(name: str) -> Workload:
    """Read a workload from its file, which holds:

    - a docstring, whose first line is the title;
    - a function for each engine that can do it: `penstock(run)`, `daft(run)`, `ray_data(run)`, `plain(run)`. It imports
      its engine inside, writes Parquet under `run.output` or returns a JSON value, which is compared;
    - `TARGETS`: tuples `(metric, at_most, engine or None)`; `MIN_REPEAT`, where a median of three says too little;
      `ONCE`, the engines that are run only once, as they take long;
    - `FIGURES`, where it measures something besides: the words for each figure, by the name that `run.figures` has;
    - `DATASET`, `NUM_ROWS` and `make_batch(rng, start, num_rows) -> pyarrow.RecordBatch`, where it reads a dataset; or
      `make_file(rng, folder, number)`, which writes one file, called `NUM_ROWS` times;
    - `serving(num_rows)`, where it needs a server: a context manager that gives the environment to reach it with;
    - `start_ray()`, where its Ray is not one node with all cores; its `ray_data(run)` calls it too;
    - `TOLERANCE`, where the answer is numbers by name that may differ by as much.

    They are plain values, so that a measured process loads nothing but its engine.
    """
    module = import_module(f"benchmarks.workloads.{name}")
    figures = getattr(module, "FIGURES", {})
    return Workload(
        name=name,
        title=(module.__doc__ or name).strip().splitlines()[0].rstrip("."),
        engines=tuple(engine for engine in (*ENGINES, *ON_RAY) if hasattr(module, ON_RAY.get(engine, engine))),
        targets=tuple(Target(*target, figures.get(target[0])) for target in getattr(module, "TARGETS", ())),
        min_repeat=getattr(module, "MIN_REPEAT", 1),
        once=getattr(module, "ONCE", ()),
        figures=figures,
        dataset=getattr(module, "DATASET", None),
        num_rows=getattr(module, "NUM_ROWS", 0),
        make_batch=getattr(module, "make_batch", None),
        make_file=getattr(module, "make_file", None),
        serving=getattr(module, "serving", None),
        tolerance=getattr(module, "TOLERANCE", 0.0),
    )


def names() -> list[str]:
    """Return the name of every workload."""
    return sorted(path.stem for path in Path(__file__).with_name("workloads").glob("[a-z]*.py"))
