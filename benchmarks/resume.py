"""Measure the time from a kill of a nearly finished job to its next call: `python -m benchmarks.resume [ROWS]`.

A job of prompts is killed when 99 % of its rows are answered, and run again. What counts is the time from the start of
the new process, Python and imports included, to the first new call that reaches the server.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.testing import ModelServer

JOB = """
import sys
import penstock as ps
from penstock.functions import format, prompt

url, num_rows, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ps.set_provider("openai", base_url=url, api_key="none")
texts = ps.range(num_rows).with_column("text", format("Say {} in words.", ps.col("id")))
answered = texts.with_column("answer", prompt(ps.col("text"), model="any", temperature=0, use_chat_completions=True))
answered.write_parquet(out, resume=True)
"""


def main(num_rows: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="penstock-resume-"))
    try:
        with ModelServer(keep_requests=0) as server:
            command = [sys.executable, "-c", JOB, server.openai_url, str(num_rows), str(folder / "out")]
            started = time.perf_counter()
            first = subprocess.Popen(command)
            while server.num_requests < num_rows * 0.99:
                assert first.poll() is None, "the job ended before it could be killed"
                time.sleep(0.01)
            first.send_signal(signal.SIGKILL)
            first.wait()
            print(f"{num_rows:,} rows, killed after {time.perf_counter() - started:.1f} s", flush=True)
            time.sleep(1.0)  # what was sent before the kill arrives
            before = server.num_requests
            started = time.perf_counter()
            second = subprocess.Popen(command)
            while server.num_requests == before:
                assert second.poll() is None, "nothing was left to do"
                time.sleep(0.002)
            print(f"first new call after {time.perf_counter() - started:.2f} s", flush=True)
            second.wait()
            print(f"done after {time.perf_counter() - started:.1f} s, with {server.num_requests - before:,} calls")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
