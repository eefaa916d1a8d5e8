"""A person retries, continues and pays for a run on the page, which asks once and says what it did."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import penstock as ps
from penstock.dashboard.job import JobBoard
from penstock.dashboard.live import Order
from penstock.dashboard.server import DashboardServer
from penstock.errors import InvalidArgumentError
from tests.dashboard.test_job import run_job, served
from tests.dashboard.test_live import check_access, ordered
from tests.plain_server import change, counts, plain_server


def test_failed_rows_are_retried_by_the_command_of_the_job(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    rows = tmp_path / "in.jsonl"
    rows.write_text("".join(json.dumps({"t": f"text {number}"}) + "\n" for number in range(1, 31)))
    out = tmp_path / "out"
    with plain_server(latency=0.01, bad_every=10) as url:
        command = ["prompt", str(rows), "-c", "t", "-m", "gpt-5-mini", "--base-url", url, "--on-error", "ignore"]
        subprocess.run([sys.executable, "-m", "penstock", *command, "-o", str(out), "--resume"], capture_output=True)
        change(url, bad_every=0)
        with served(out) as server:
            page.goto(server.url)
            expect(page.locator("#error-kinds")).to_contain_text("is not acceptable")
            expect(page.locator("#tiles")).to_contain_text("90 % of 30")
            page.get_by_role("button", name="Retry 3").click()
            expect(page.get_by_role("dialog")).to_contain_text(f"--base-url {url}")
            check_access(page)
            ordered(page, page.get_by_role("button", name="Start it").click)
            expect(page.locator("#said")).to_contain_text("Started again as process")
            expect(page.get_by_text("No row has failed.")).to_be_visible()
            expect(page.locator("#query-state")).to_have_text("finished")
    assert ps.read_parquet(str(out)).where(ps.col("answer").is_null()).count_rows() == 0


def test_a_larger_budget_lets_a_run_go_on(page: Page, dashboard: DashboardServer) -> None:
    """The calls that wait for money proceed."""

    def run() -> None:
        with ps.config(dashboard=True, progress=False), ps.spending(0.002):
            done.append(prompts.collect())

    done: list[ps.DataFrame] = []
    with plain_server(latency=3.0) as url:
        ps.set_provider("openai", base_url=url, api_key="test")
        df = ps.from_pydict({"t": [f"text {number}" for number in range(40)]})
        prompts = df.with_column("a", ps.prompt(ps.col("t"), model="gpt-5-mini", max_output_tokens=50))
        thread = threading.Thread(target=run)
        thread.start()
        page.goto(dashboard.url)

        def set_budget(dollars: str) -> None:
            page.get_by_role("button", name="Budget").click()
            page.get_by_role("spinbutton", name=re.compile("The most that the run may cost")).fill(dollars)
            page.get_by_role("button", name="Set the budget").click()

        set_budget("0.0025")
        expect(page.locator("#said")).to_have_text("The budget is $0.0025 now.")
        set_budget("5")
        expect(page.locator("#said")).to_have_text("The budget is $5.00 now.")
        expect(page.locator("#query-state")).to_have_text("finished")
        expect(page.locator("#log")).to_contain_text("A person set the budget to $5.00.")
        thread.join()
        assert counts(url)["answered"] == 40
    assert len(done) == 1


def test_a_second_press_starts_no_second_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    rows, out = tmp_path / "in.jsonl", tmp_path / "out"
    rows.write_text("".join(json.dumps({"t": f"text {number}"}) + "\n" for number in range(1, 11)))
    with plain_server(bad_every=5, latency=0.01) as url:
        command = ["prompt", str(rows), "-c", "t", "-m", "gpt-5-mini", "--base-url", url, "--on-error", "ignore"]
        subprocess.run([sys.executable, "-m", "penstock", *command, "-o", str(out), "--resume"], capture_output=True)
        change(url, bad_every=0)
        board = JobBoard([str(out)])
        said = board.control({"action": "retry"})
        with pytest.raises(
            InvalidArgumentError, match=f"started already, as process {said.split()[-1][:-1]}, and still runs"
        ):
            board.control({"action": "retry"})
        while board.state({})["query"]["num_failed"]:
            time.sleep(0.1)


@pytest.mark.parametrize(("typed", "shown"), [("-1", "-1"), ("0", "0"), ("", "nothing"), ("inf", "inf")])
def test_a_budget_without_money_is_refused(typed: str, shown: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"A budget is an amount above 0 dollars; got {shown}\\."):
        Order.of({"action": "budget", "dollars": typed})


def test_the_job_of_a_script_has_a_command_to_copy_and_no_button(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [sys.executable, "reviews.py", "a folder"]
    monkeypatch.setattr(sys, "argv", program[1:])  # those of a worker of pytest are no script
    monkeypatch.setattr(sys, "orig_argv", program)
    run_job(tmp_path / "out", num_rows=42)
    with served(tmp_path / "out") as server:
        page.goto(server.url)
        expect(page.locator("#error-kinds")).to_contain_text("no answer")
        expect(page.get_by_role("button", name="Retry 1")).to_have_count(0)
        expect(page.locator("#program")).to_contain_text('To run the 1 failed row again, start it with resume="errors"')
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy the command").click()
        expect(page.locator("#said")).to_have_text("The command is copied.")
        command = page.evaluate("navigator.clipboard.readText()")
        assert command == f"cd {os.getcwd()} && {shlex.join(program)}"
        check_access(page)
        with pytest.raises(InvalidArgumentError, match="does not run"):
            server._board.control({"action": "pause", "query": 1})
