"""The process in which one engine runs one workload once.

`python -m benchmarks.child WORKLOAD ENGINE INPUT OUTPUT REPORT`, as the harness starts it.

It imports next to nothing before the engine does, so that what an engine imports is charged to that engine.
"""

import sys
import time
from importlib import import_module
from types import ModuleType

LOADED_LATE = (
    *("frame.dataframe", "frame.read.files", "functions", "io.formats.parquet", "jobs.folder", "observe.progress"),
    *("runners.query", "runners.local", "engine.pools.asyncio", "engine.pools.thread_to_process"),
    *("io.file_source", "udf.aio", "udf.callers"),
)


class Run:
    """The argument of a workload's function: the input folder, an empty output folder, and the clock of the work.

    ``with run.working():`` surrounds the work, after the imports and the start of a cluster. A function that counts
    units (bundles, requests) sets ``num_units`` and gets a time for each; one that measures something else puts it into
    ``figures``, by a name of the workload's ``FIGURES``.
    """

    def __init__(self, input_path: str, output_path: str) -> None:
        self.input = input_path
        self.output = output_path
        self.num_units = 0
        self.figures: dict[str, float] = {}
        self.work_s = 0.0

    def working(self) -> "Run":
        return self

    def __enter__(self) -> None:
        if "penstock" in sys.modules:  # it loads its modules when they are first used; other engines when imported
            for name in LOADED_LATE:
                import_module(f"penstock.{name}")
        self._start = time.perf_counter()

    def __exit__(self, *exc_info: object) -> None:
        self.work_s += time.perf_counter() - self._start


def main(workload: str, engine: str, input_path: str, output_path: str, report_path: str) -> None:
    """Run the workload's function for the engine, then write its times and its answer for the harness."""
    run = Run(input_path, output_path)
    module = import_module(f"benchmarks.workloads.{workload}")
    if engine in ("penstock_ray", "daft_ray"):
        engine = engine.removesuffix("_ray")
        start_for(engine, module)
    answer = getattr(module, engine)(run)

    import json

    with open(report_path, "w") as report:
        said = {"work_s": run.work_s, "num_units": run.num_units, "figures": run.figures, "answer": answer}
        json.dump(said, report)


def start_for(engine: str, workload: ModuleType) -> None:
    """Start Ray, as the workload says, and make it the runner of an engine that is imported later."""
    import os

    from benchmarks.ray_cluster import start

    getattr(workload, "start_ray", start)()
    os.environ[f"{engine.upper()}_RUNNER"] = "ray"


if __name__ == "__main__":
    main(*sys.argv[1:])
