"""The results as a table on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import REFERENCE, WorkloadResult

HEADINGS = ("engine", "work s", "whole process s", "peak MB", "work ratio", "process ratio", "memory ratio", "output")
NOTES = f"""\
Figures are the median of the runs, with the least in brackets. *Work* is measured inside the process, after imports and
after `ray.init`; *whole process* from outside, from spawn to exit. *Peak MB* is the peak PSS of the process and all its
descendants, sampled. A *ratio* is the engine's median over {REFERENCE}'s: above 1, {REFERENCE} is better. Engines take
turns, each run in its own process; every output is compared with the hand-written loop's as a multiset of rows.
Timings on a shared machine vary: judge by the ratios of one run."""


def print_results(results: list[WorkloadResult]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    for result in results:
        table = Table(*HEADINGS, title=_title(result), title_justify="left", title_style="bold")
        for row in _rows(result):
            table.add_row(*row)
        console.print(table)
        for heading, text in _errors(result):
            console.print(f"[red]{heading}[/red]")
            console.print(text, markup=False, highlight=False)
    targets = Table("workload", "target", "measured", "", title="Targets", title_justify="left", title_style="bold")
    for row in _target_rows(results):
        targets.add_row(*row, style={"met": "green", "missed": "red"}.get(row[-1], "dim"))
    console.print(targets)


def write_results(results: list[WorkloadResult], machine: dict[str, Any], path: Path) -> None:
    """Write `path.md` and `path.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".md").write_text(_markdown(results, machine))
    path.with_suffix(".json").write_text(json.dumps(_document(results, machine), indent=2) + "\n")


def _markdown(results: list[WorkloadResult], machine: dict[str, Any]) -> str:
    parts = ["# Benchmark results", "", "Written by `make bench`.", "", NOTES, "", "## Targets", ""]
    parts += _markdown_table(("workload", "target", "measured", ""), _target_rows(results))
    for result in results:
        parts += ["", f"## {_title(result)}", "", *_markdown_table(HEADINGS, _rows(result))]
        for heading, text in _errors(result):
            parts += ["", heading, "", "```", text, "```"]
    parts += ["", "## Machine", "", *_markdown_table(("fact", "value"), [(k, str(v)) for k, v in machine.items()])]
    return "\n".join(parts) + "\n"


def _markdown_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (headings, ("---",) * len(headings), *rows)]


def _document(results: list[WorkloadResult], machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": machine,
        "workloads": {
            result.workload.name: {
                "title": result.workload.title,
                "num_rows": result.num_rows,
                "engines": {
                    name: {
                        "runs": [{**asdict(run), "fingerprint": shortened(run.fingerprint)} for run in engine.runs],
                        "output": result.output_word(name),
                        **{
                            metric: {"median": engine.median(metric), "min": engine.minimum(metric)}
                            for metric in ("work_s", "wall_s", "peak_mb", "unit_us", *result.workload.figures)
                        },
                    }
                    for name, engine in result.engines.items()
                },
                "targets": [
                    {**asdict(v.target), "text": str(v.target), "measured": v.measured, "verdict": v.word}
                    for v in result.verdicts()
                ],
            }
            for result in results
        },
    }


def _title(result: WorkloadResult) -> str:
    scaled = result.num_rows and result.num_rows != result.workload.num_rows
    suffix = f" (scaled: {result.num_rows:,} rows)" if scaled else ""
    return f"{result.workload.name}: {result.workload.title}{suffix}"


def _rows(result: WorkloadResult) -> list[tuple[str, ...]]:
    rows = []
    for name, engine in result.engines.items():
        unit = engine.median("unit_us")
        own = [f"{unit:.1f} us a unit"] if unit else []
        if not engine.error:
            own += [f"{engine.median(figure):.1f} {words}" for figure, words in result.workload.figures.items()]
        rows.append(
            (
                name + (f" ({', '.join(own)})" if own else ""),
                _figure(engine.median("work_s"), engine.minimum("work_s"), ".3f"),
                _figure(engine.median("wall_s"), engine.minimum("wall_s"), ".3f"),
                _figure(engine.median("peak_mb"), engine.minimum("peak_mb"), ".0f"),
                *(_ratio(result.ratio(name, metric)) for metric in ("work_s", "wall_s", "peak_mb")),
                result.output_word(name),
            )
        )
    return rows


def _target_rows(results: list[WorkloadResult]) -> list[tuple[str, ...]]:
    return [(r.workload.name, str(v.target), v.figure, v.word) for r in results for v in r.verdicts()]


def _errors(result: WorkloadResult) -> list[tuple[str, str]]:
    """Return a heading and a text for each engine that failed or gave another output."""
    found = [(f"{name} failed:", engine.error) for name, engine in result.engines.items() if engine.error]
    different = [name for name in result.engines if result.output_word(name) == "DIFFERENT"]
    for name in different:
        got = "\n".join(sorted(result.engines[name].fingerprints))
        found.append((f"{name} gave another output:", f"expected {result.expected}\ngot      {got}"))
    return found


def _figure(median: float | None, minimum: float | None, spec: str) -> str:
    return "-" if median is None or minimum is None else f"{median:{spec}} ({minimum:{spec}})"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def shortened(text: str) -> str:
    """Return a fingerprint, or of a long one its hash: a thousand numbers say nothing to a reader."""
    return text if len(text) <= 200 else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"
