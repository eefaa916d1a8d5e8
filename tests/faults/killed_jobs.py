"""Jobs that are killed again and again: ``python -m tests.faults.killed_jobs`` with a ``Lane`` as JSON.

The process imports everything once, and forks for each run of a job. It kills the runs at instants of its own choice:
after some time, or when a file appears. Each thing that happens is a line of JSON on its output.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock import col
from penstock.functions import prompt

LOADED_ONCE = (
    "aiohttp", "pandas", "penstock.ai.prompt", "penstock.ai.providers.openai", "penstock.io.formats.json",
    "penstock.io.formats.parquet", "penstock.jobs.write_job", "penstock.runners.local",
    "penstock.udf.aio", "uvloop",
)  # fmt: skip
NUM_ROWS = 120
RUN_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Lane:
    """Jobs one after another, until that many runs have been killed."""

    folder: str
    url: str
    seed: int
    num_kills: int


def rows_of(job: str) -> list[str]:
    """Return what a job asks: no other asks the same."""
    return [f"{job}-{number}" for number in range(NUM_ROWS)]


def make_inputs(folder: Path, job: str) -> None:
    folder.mkdir(parents=True)
    rows = rows_of(job)
    for number, start in enumerate(range(0, NUM_ROWS, NUM_ROWS // 3)):
        texts = rows[start : start + NUM_ROWS // 3]
        pq.write_table(pa.table({"text": texts, "n": range(start, start + len(texts))}), folder / f"{number}.parquet")


def asked(folder: Path) -> ps.DataFrame:
    answer = prompt(col("text"), provider="openai", model="tiny", temperature=0, max_concurrency=4)
    return ps.read_parquet(str(folder)).with_column("answer", answer)


def write_parquet(folder: Path, out: str) -> None:
    asked(folder).write_parquet(out, resume=True, rows_per_file=4)


def write_partitions(folder: Path, out: str) -> None:
    parts = asked(folder).with_column("k", col("n") % 5)
    parts.write_parquet(out, resume=True, rows_per_file=7, partition_cols=["k"])


def write_lots(folder: Path, out: str) -> None:
    lots = asked(folder).flat_map(lambda row: [row | {"copy": copy} for copy in range(row["n"] % 3)])
    lots.map_batches(lambda batch: batch, batch_size=8).write_parquet(out, resume=True, rows_per_file=4)


def write_json(folder: Path, out: str) -> None:
    asked(folder).where(col("n") % 2 == 0).write_json(out, resume=True, rows_per_file=3)


def write_limited(folder: Path, out: str) -> None:
    """Not row-wise: it begins anew each time, with the answers that are kept."""
    asked(folder).limit(NUM_ROWS - 1).write_parquet(out, resume=True, rows_per_file=4)


KINDS: dict[str, Callable[[Path, str], None]] = {
    each.__name__: each for each in (write_parquet, write_partitions, write_lots, write_json, write_limited)
}


def say(**said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def run(lane: Lane, kind: str, folder: Path, name: str) -> None:
    """One run of a job, in a process of its own. Its calls can be told by their API key, which is its name."""
    try:
        ps.set_provider("openai", base_url=lane.url, api_key=name)
        ps.set_config(checkpoint_interval=0.05, progress=False)
        KINDS[kind](folder / "in", str(folder / "out"))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def moment(dice: random.Random, job: Path) -> Callable[[float], bool]:
    """Return what says, given for how long a run has been at work, whether it is to be killed now."""
    journal, staged = job / "journal", job / "data"
    jitter = dice.choice((0.0, 0.001, 0.01))
    match dice.choice(("time", "time", "time", "journal", "staged", "commit.json", "finished.json")):
        case "time":
            after_s = dice.uniform(0.0, 1.1)
            return lambda elapsed_s: elapsed_s >= after_s
        case "journal":
            known = _names(journal)
            return _delayed(lambda: bool(_names(journal) - known), jitter)
        case "staged":
            known = _names(staged)
            return _delayed(lambda: bool(_names(staged) - known), jitter)
        case name:
            return _delayed((job / name).exists, jitter)


def _delayed(is_so: Callable[[], bool], delay_s: float) -> Callable[[float], bool]:
    seen_at_s: list[float] = []

    def is_now(elapsed_s: float) -> bool:
        if not seen_at_s and is_so():
            seen_at_s.append(elapsed_s)
        return bool(seen_at_s) and elapsed_s >= seen_at_s[0] + delay_s

    return is_now


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def killed(pid: int, is_now: Callable[[float], bool]) -> bool:
    """Kill a run when it is time; False if it came to its end before."""
    began = time.monotonic()
    while (elapsed_s := time.monotonic() - began) < RUN_TIMEOUT_S:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"a run failed by itself (status {status})"
            return False
        if is_now(elapsed_s):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            return os.WIFSIGNALED(status)
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("a run hangs")


def main(lane: Lane) -> None:
    for module in LOADED_ONCE:
        importlib.import_module(module)
    dice, num_killed, number = random.Random(lane.seed), 0, 0
    while num_killed < lane.num_kills:
        job, kind = f"job{lane.seed}x{number}", list(KINDS)[(lane.seed + number) % len(KINDS)]
        folder, number = Path(lane.folder) / job, number + 1
        make_inputs(folder / "in", job)
        while True:
            is_now = moment(dice, folder / "out" / "_penstock_job") if num_killed < lane.num_kills else lambda _: False
            name = f"{job}-run{num_killed}"
            if not (pid := os.fork()):
                run(lane, kind, folder, name)
            if not killed(pid, is_now):
                break
            num_killed += 1
            say(run=name)
        say(job=job, kind=kind, folder=str(folder))


if __name__ == "__main__":
    main(Lane(**json.loads(sys.argv[1])))
