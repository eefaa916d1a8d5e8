"""Ten expression functions on a million rows, in turn with Daft: ``python -m benchmarks.functions``.

Each engine runs in a process of its own, several times in turn. The least CPU time of all threads counts: it depends
least on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

EXPRESSIONS = {
    "upper": "F.upper(col('word'))",
    "split_part": "F.split_part(col('url'), '/', 3)",
    "substring_index": "F.substring_index(col('url'), '/', 3)",
    "levenshtein_distance": "F.levenshtein_distance(col('word'), col('other'))",
    "to_snake_case": "F.to_snake_case(col('word'))",
    "parse_url": "F.parse_url(col('url'))",
    "pmod": "F.pmod(col('i'), col('j'))",
    "great_circle_distance": "F.great_circle_distance(col('x'), col('x'), col('y'), col('y'))",
    "add_months": "F.add_months(col('day'), col('j'))",
    "partition_hours": "F.partition_hours(col('time'))",
}


def measured(engine: str, num_rows: int) -> dict[str, float]:
    """Return the CPU seconds of each function in this process; the second of two runs, which has all code loaded."""
    import importlib

    import numpy as np
    import pyarrow as pa

    module, functions = importlib.import_module(engine), importlib.import_module(f"{engine}.functions")
    random = np.random.default_rng(1)
    letters = random.integers(97, 107, (20_000, 9)).astype(np.uint8)
    words = np.array([bytes(row[: 4 + row[0] % 6]).decode() for row in letters], dtype=object)
    table = pa.table(
        {
            "word": pa.array(words[random.integers(0, len(words), num_rows)], pa.string()),
            "other": pa.array(words[random.integers(0, len(words), num_rows)], pa.string()),
            "url": [f"https://host{n % 97}.com:8080/page/{n}?q={n}#top" for n in range(num_rows)],
            "i": random.integers(-1000, 1000, num_rows),
            "j": random.integers(1, 50, num_rows),
            "x": random.random(num_rows) * 90,
            "y": random.random(num_rows) * 90,
            "day": pa.array(random.integers(0, 20_000, num_rows).astype(np.int32)).cast(pa.date32()),
            "time": pa.array(random.integers(0, 10**15, num_rows)).cast(pa.timestamp("us")),
        }
    )
    df = module.from_arrow(table).collect()
    names = {"F": functions, "col": module.col}
    found = {}
    for name, text in EXPRESSIONS.items():
        for _ in range(2):
            start = time.process_time()
            df.select(eval(text, names).alias("found")).to_arrow()
            found[name] = time.process_time() - start
    return found


def main() -> None:
    """Measure both engines in turn and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument("--peers-python", default=".venv-peers/bin/python")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engine", help="measure one engine in this process")
    options = parser.parse_args()
    if options.engine:
        json.dump(measured(options.engine, options.rows), sys.stdout)
        return
    best: dict[str, dict[str, float]] = {"penstock": {}, "daft": {}}
    for _ in range(options.repeat):
        for engine, python in (("penstock", sys.executable), ("daft", options.peers_python)):
            command = [python, str(Path(__file__)), "--engine", engine, "--rows", str(options.rows)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                best[engine][name] = min(seconds, best[engine].get(name, seconds))
    print(f"{'function':24}{'penstock':>10}{'daft':>10}{'ratio':>8}   (CPU seconds, {options.rows:,} rows)")
    for name in EXPRESSIONS:
        ours, theirs = best["penstock"][name], best["daft"][name]
        print(f"{name:24}{ours:10.3f}{theirs:10.3f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
