"""Measurements: the runs of each engine, their medians, and the targets judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.compare import are_near
from benchmarks.workload import Target, Workload

REFERENCE = "penstock"


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of one engine. ``error`` is empty if it succeeded."""

    wall_s: float
    work_s: float
    peak_mb: float
    num_samples: int = 0
    unit_us: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    error: str = ""

    def metric(self, name: str) -> float:
        """Return a figure of the workload, or one that every workload has."""
        return self.figures[name] if name in self.figures else getattr(self, name)


@dataclass(slots=True)
class EngineResult:
    engine: str
    runs: list[RunResult] = field(default_factory=list)

    @property
    def error(self) -> str:
        return next((run.error for run in self.runs if run.error), "")

    @property
    def fingerprints(self) -> set[str]:
        return {run.fingerprint for run in self.runs if not run.error}

    def median(self, metric: str) -> float | None:
        """Return the median of the runs; None where one of them failed."""
        return None if self.error or not self.runs else median(run.metric(metric) for run in self.runs)

    def minimum(self, metric: str) -> float | None:
        return None if self.error or not self.runs else min(run.metric(metric) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and the figure it is judged by; ``measured`` is None if an engine did not run, failed or was wrong."""

    target: Target
    measured: float | None

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if self.measured <= self.target.at_most else "missed"

    @property
    def figure(self) -> str:
        if self.measured is None:
            return "-"
        if self.target.of is None:
            return f"{self.measured:.1f}"
        # Written as the target is: "3.2x as fast", or "0.45x".
        if self.target.at_most < 1 and self.target.metric != "peak_mb":
            return f"{1 / self.measured:.2f}x as fast"
        return f"{self.measured:.2f}x"


@dataclass(slots=True)
class WorkloadResult:
    workload: Workload
    num_rows: int
    engines: dict[str, EngineResult]

    def ratio(self, engine: str, metric: str, of: str = REFERENCE) -> float | None:
        """Return the engine's median over that of another, each from this run."""
        above, below = (self.engines[e].median(metric) if e in self.engines else None for e in (engine, of))
        return above / below if above is not None and below else None

    def verdicts(self) -> list[Verdict]:
        return [Verdict(target, self._measured(target)) for target in self.workload.targets]

    def _measured(self, target: Target) -> float | None:
        if any(self.output_word(engine) == "DIFFERENT" for engine in (REFERENCE, target.of) if engine in self.engines):
            return None  # a wrong answer has no speed
        if target.of is not None:
            return self.ratio(REFERENCE, target.metric, of=target.of)
        return self.engines[REFERENCE].median(target.metric) if REFERENCE in self.engines else None

    @property
    def expected(self) -> str | None:
        """The output to agree with: the hand-written loop's, or the first engine's that has one."""
        order = ["plain", *self.engines]
        found = (fp for e in order if e in self.engines for fp in sorted(self.engines[e].fingerprints))
        return next(found, None)

    def output_word(self, engine: str) -> str:
        """Return True if every run of an engine gave the expected output."""
        result = self.engines[engine]
        if result.error:
            return "failed"
        others = [e for e in self.engines if e != engine and not self.engines[e].error]
        if not others:
            return "nothing to compare"
        if result.fingerprints == {self.expected}:
            return "equal"
        tolerance = self.workload.tolerance
        is_near = all(are_near(found, self.expected, tolerance) for found in result.fingerprints)
        return f"equal within {tolerance:g}" if is_near else "DIFFERENT"

    @property
    def is_sound(self) -> bool:
        """Return True if every engine ran and gave the same output."""
        return all(self.output_word(engine) not in ("failed", "DIFFERENT") for engine in self.engines)
