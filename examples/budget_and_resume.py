"""Estimate what a job costs, give it a budget, kill it, run it again: no finished call is paid for twice."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from offline import connect

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"


def job() -> ps.DataFrame:
    return ps.read_json(str(REVIEWS)).with_column(
        "happy", ps.prompt("Is this customer happy? {text}", model="gpt-5-mini")
    )


def run(output: str) -> None:
    job().write_parquet(output, resume=True, budget=1.00)


def main() -> None:
    server = connect(latency=0.2, max_concurrency=20)
    assert server is not None, "this example counts calls: run it without OPENAI_API_KEY"
    print(job().estimate_cost(sample=10))

    output = tempfile.mkdtemp()
    again = [sys.executable, __file__, output]
    first = subprocess.Popen(again, stderr=subprocess.DEVNULL)
    start = server.counts.completed
    while server.counts.completed - start < 200:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    print(f"\nKilled after {server.counts.completed - start} of 480 answers. Running it again ...")

    subprocess.run(again, check=True)
    rows = ps.read_parquet(output).count_rows()
    print(f"{rows} rows, {server.counts.completed - start} answers in both runs: only calls in flight were repeated.")


if __name__ == "__main__":
    run(sys.argv[1]) if sys.argv[1:] else main()
