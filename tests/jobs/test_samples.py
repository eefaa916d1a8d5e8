"""Equal prompts that are answered by chance, in jobs: each row has an answer of its own, whenever the job is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.functions import prompt
from penstock.testing import ModelServer, faults
from tests.jobs.helpers import column, num_safe, wait_until

NUM_ROWS = 300
AT_ONCE = 8
UNDER_WAY = 4 * AT_ONCE  # as n=2 is two calls at once
LATENCY_S = 0.03

SCRIPT = f"""
import sys, penstock as ps
from penstock.functions import prompt
url, out = sys.argv[1:]
ps.set_provider("openai", base_url=url, api_key="k")
ps.set_config(checkpoint_interval=0.05, progress=False)
asked = {{name: prompt(ps.col("q"), model="tiny", max_concurrency={AT_ONCE}) for name in "ab"}}
several = prompt(ps.col("q"), model="tiny", max_concurrency={AT_ONCE}, n=2)
df = ps.from_pydict({{"q": ["a"] * {NUM_ROWS}}}).with_columns(asked).with_column("c", several)
df.write_parquet(out, resume=True, rows_per_file=8)
"""


def random_answer(request: Any) -> str:
    return uuid.uuid4().hex


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.PIPE)


def test_rows_of_a_killed_job_have_answers_of_their_own(tmp_path: Path) -> None:
    """Four equal calls for each of equal rows, by three stages; killed twice after rows were written."""
    out = tmp_path / "out"
    with ModelServer(answer=random_answer, latency=LATENCY_S) as server:
        for num_wanted in (NUM_ROWS // 10, NUM_ROWS // 3):
            # It does not come to its end, however late it is killed.
            server.change(faults=[faults.Hang(at=range(10 * NUM_ROWS // 3 - server.num_requests, 10**9))])
            with started(server.openai_url, str(out)) as process:
                wait_until(lambda most=num_wanted: num_safe(out) >= most)
                process.send_signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL
        assert num_safe(out) < NUM_ROWS
        server.change(faults=[])
        with started(server.openai_url, str(out)) as process:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said.decode()
        num_requests = server.num_requests
    found = ps.read_parquet(str(out)).to_pydict()
    answers = [*found["a"], *found["b"], *(each for row in found["c"] for each in row)]
    assert len(set(answers)) == len(answers) == 4 * NUM_ROWS
    at_risk = UNDER_WAY * (1 + 0.1 / LATENCY_S)  # by a kill: what was under way, and what came in the last 100 ms
    assert num_requests <= len(answers) + 2 * at_risk


def test_a_job_takes_samples_that_a_query_paid_for(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.change(answer=random_answer)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="k")
    ask = prompt(ps.col("q"), model="tiny")
    df = ps.from_pydict({"q": ["a"] * 20 + ["b"]}).select(ask.alias("a"))
    with ps.config(cache_dir=str(tmp_path / "cache")):
        paid = sorted(df.to_pydict()["a"])
        for name in ("one", "two"):
            df.write_parquet(str(tmp_path / name), resume=True)
            assert column(tmp_path / name) == paid
    assert model_server.num_requests == 21


@pytest.mark.parametrize("options", [{}, {"batch_api": True, "batch_poll_interval": 0.01}], ids=["prompts", "batches"])
def test_the_ledger_of_a_job_counts_one_record_for_each_call(
    model_server: ModelServer, tmp_path: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="k")
    ask = prompt(ps.col("q"), model="tiny", **options)
    ps.from_pydict({"q": ["a"] * 5 + ["b"] * 7}).select(ask).write_parquet(str(tmp_path / "out"), resume=True)
    assert main(["cache", "stats", "--dir", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_records"] == 12
    assert main(["cache", "clear", "--dir", str(tmp_path / "out"), "--json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out)["num_removed"] == 12


def test_another_input_takes_the_answers_that_are_there(model_server: ModelServer, tmp_path: Path) -> None:
    """Rows that move to other places are not asked again when the job is forced to go on."""
    model_server.change(answer=random_answer)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="k")
    ask = prompt(ps.col("q"), model="tiny")
    out = tmp_path / "out"
    for questions, resume in ((["a", "b", "c", "a"], True), (["new", "a", "b", "c", "a"], "force")):
        ps.from_pydict({"q": questions}).select(ask.alias("a")).write_parquet(str(out), resume=resume)
    assert len(set(column(out))) == 5
    assert model_server.num_requests == 5
