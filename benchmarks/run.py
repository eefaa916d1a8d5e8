"""Measure the workloads side by side: `python -m benchmarks.run`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.compare import fingerprint
from benchmarks.dataset import prepare, warm
from benchmarks.process import Measurement, measure
from benchmarks.report import print_results, write_results
from benchmarks.results import EngineResult, RunResult, WorkloadResult
from benchmarks.workload import ENGINES, ON_RAY, PEERS, Workload, load, names

ROOT = Path(__file__).parent.parent
DATA = ROOT / "benchmarks" / "data"
DISTRIBUTIONS = ("penstock", "daft", "ray", "pyarrow", "numpy")

# Every engine starts from this environment alone: no progress bars, no telemetry.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
SETTINGS = {
    "DAFT_PROGRESS_BAR": "0",
    "DAFT_ANALYTICS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
    "PENSTOCK_PROGRESS": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONWARNINGS": "ignore",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads, print and write the results. 1 where an engine failed or outputs differ, else 0."""
    options = parse(arguments)
    peers_python = os.path.abspath(options.peers_python)  # runs in other folders; resolving links would leave the venv
    pythons = {engine: peers_python if engine in PEERS else sys.executable for engine in (*ENGINES, *ON_RAY)}
    machine = machine_facts(pythons, options)
    results = []
    for name in options.only:
        workload = load(name)
        engines = [engine for engine in workload.engines if engine in options.engines]
        if engines:
            results.append(run_workload(workload, engines, pythons, options))
    print_results(results)
    is_whole = (set(options.only), set(options.engines), options.scale) == (set(names()), set(ENGINES), 1.0)
    path = options.results or (ROOT / "benchmarks" / "results" if is_whole else DATA / "results")
    write_results(results, machine, path)
    print(f"Written to {path.with_suffix('.md')} and .json")
    return 0 if all(result.is_sound for result in results) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=names(), default=names(), metavar="WORKLOAD", help=", ".join(names())
    )
    engines = (*ENGINES, *ON_RAY)
    parser.add_argument(
        "--engines",
        nargs="+",
        choices=engines,
        default=ENGINES,
        metavar="ENGINE",
        help=f"{', '.join(engines)} (default: without those that end with _ray)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of each engine; some workloads take more (default 3)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of rows")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a run may take (default 300)")
    parser.add_argument("--peers-python", default=str(ROOT / ".venv-peers/bin/python"), help="Python with daft and ray")
    parser.add_argument(
        "--results",
        type=Path,
        help="path of results, no suffix (benchmarks/results; a partial run: benchmarks/data/results)",
    )
    return parser.parse_args(arguments)


def run_workload(
    workload: Workload, engines: list[str], pythons: dict[str, str], options: argparse.Namespace
) -> WorkloadResult:
    """Run each engine in turn, and again, so that a disturbance of the machine affects all of them."""
    folder, num_rows = prepare(workload, options.scale, DATA)
    result = WorkloadResult(workload, num_rows, {engine: EngineResult(engine) for engine in engines})
    num_rounds = max(options.repeat, workload.min_repeat)
    with nullcontext(dict[str, str]()) if workload.serving is None else workload.serving(num_rows) as served:
        for round_number in range(num_rounds):
            # Turn the order round, so that no engine always follows the same one.
            for engine in engines[round_number % len(engines) :] + engines[: round_number % len(engines)]:
                if result.engines[engine].error:
                    continue  # it failed once; failing again says nothing new
                if round_number and engine in workload.once:
                    continue
                warm(folder)
                run = run_engine(workload, engine, pythons[engine], folder, options.timeout, served)
                result.engines[engine].runs.append(run)
                outcome = f"work {run.work_s:.3f} s, process {run.wall_s:.3f} s, {run.peak_mb:.0f} MB"
                status = "FAILED" if run.error else outcome
                print(f"{workload.name} {round_number + 1}/{num_rounds} {engine}: {status}", flush=True)
    return result


def run_engine(
    workload: Workload, engine: str, python: str, folder: Path | None, timeout_s: float, served: Mapping[str, str]
) -> RunResult:
    """Run one engine once, in a process, an environment and a scratch folder of its own."""
    if not Path(python).exists():
        return RunResult(0, 0, 0, error=f"{python} does not exist; `make bench` installs it")
    DATA.mkdir(exist_ok=True)
    output = Path(tempfile.mkdtemp(prefix="output-", dir=DATA))
    # In /tmp, because Ray puts sockets there and their paths must be short.
    scratch = Path(tempfile.mkdtemp(prefix="psb-", dir="/tmp"))
    try:
        report = scratch / "report.json"
        command = [python, "-m", "benchmarks.child", workload.name, engine, str(folder or ""), str(output), str(report)]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {**SETTINGS, **served} | {"TMPDIR": str(scratch), "RAY_TMPDIR": str(scratch)}
        os.sync()  # the last engine's writes must not be flushed in this one's time
        measured = measure(command, environment, ROOT, timeout_s)
        if error := failure(measured, report, timeout_s):
            return RunResult(measured.wall_s, 0, measured.peak_mb, error=error)
        said = json.loads(report.read_text())
        return RunResult(
            wall_s=measured.wall_s,
            work_s=said["work_s"],
            peak_mb=measured.peak_mb,
            num_samples=measured.num_samples,
            unit_us=said["work_s"] / said["num_units"] * 1e6 if said["num_units"] else 0.0,
            figures=said["figures"],
            fingerprint=fingerprint(output, said["answer"]),
        )
    finally:
        shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)


def failure(measured: Measurement, report: Path, timeout_s: float) -> str:
    """Return what went wrong with the end of what the process printed, or an empty text."""
    if measured.timed_out:
        return f"no end after {timeout_s:g} s\n{measured.output_tail}"
    if measured.returncode != 0 or not report.exists():
        return f"exit status {measured.returncode}\n{measured.output_tail}"
    return ""


def machine_facts(pythons: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Return what a reader needs to weigh the figures."""
    versions: dict[str, str] = {}
    for label, python in (("main", pythons["penstock"]), ("peers", pythons["daft"])):
        for name, version in installed_versions(python).items():
            if (name not in ("daft", "ray") or label == "peers") and (name != "penstock" or label == "main"):
                versions[f"{name} ({label})" if name in ("pyarrow", "numpy") else name] = version
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
        "repeat": options.repeat,
        "scale": options.scale,
        **versions,
    }


def installed_versions(python: str) -> dict[str, str]:
    """Return the versions of the engines and of what they stand on, as installed for a Python."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "have = {d.name: d.version for d in m.distributions()}\n"
        "print(json.dumps({n: have[n] for n in sys.argv[1:] if n in have}))"
    )
    if not Path(python).exists():
        return {}
    said = subprocess.run([python, "-c", code, *DISTRIBUTIONS], capture_output=True, text=True, check=True, cwd="/")
    return dict(json.loads(said.stdout))


if __name__ == "__main__":
    sys.exit(main())
