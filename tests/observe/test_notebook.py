"""Queries in a real Jupyter kernel: their progress, Ctrl-C, and errors with the frames of the cell alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.plain_server import counts, plain_server

SETUP = """
import penstock as ps
ps.set_provider("openai", base_url={base_url!r}, api_key="x")
df = ps.from_pydict({{"text": [f"review {{n}}" for n in range(400)]}})

def asked():
    return df.with_column("answer", ps.prompt(ps.col("text"), model="gpt-5-mini"))
"""
TWO_QUERIES = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as threads:
    found = list(threads.map(lambda query: query.collect(), [asked(), asked()]))
"""
FAILING_STATS = """
def number_in_a_text_that_holds_nothing_else_at_all(text: str) -> int:
    __import__("time").sleep(0.5)
    return int(text)

fails = ps.func(number_in_a_text_that_holds_nothing_else_at_all, on_error="null")
df.limit(1).with_column("n", fails(ps.col("text"))).collect().stats()
"""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Shown:
    """The output of a cell: what each display showed in turn, and the traceback."""

    displays: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    results: list[dict[str, str]] = field(default_factory=list)
    traceback: str = ""
    printed: str = ""


class Notebook:
    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self._client = manager, client

    def run(self, code: str, on_display: Callable[[str], None] = lambda text: None) -> Shown:
        """Run a cell; ``on_display`` gets the text of each drawing."""
        shown = Shown()

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "display_data" | "update_display_data":
                    name = content.get("transient", {}).get("display_id", "")
                    shown.displays.setdefault(name, []).append(content["data"])
                    on_display(content["data"].get("text/plain", ""))
                case "execute_result":
                    shown.results.append(content["data"])
                case "error":
                    shown.traceback = ANSI.sub("", "\n".join(content["traceback"]))
                case "stream":
                    shown.printed += content["text"]

        self._client.execute_interactive(code, output_hook=take, timeout=120)
        return shown


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with plain_server(latency=0.2, slots=20) as base_url:
        yield base_url


@pytest.fixture(scope="module")
def notebook(server: str) -> Iterator[Notebook]:
    manager, client = start_new_kernel(kernel_name="python3")
    notebook = Notebook(manager, client)
    shown = notebook.run(SETUP.format(base_url=server))
    assert not shown.traceback, shown.traceback
    yield notebook
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_a_cell_shows_progress_and_then_one_line(notebook: Notebook) -> None:
    shown = notebook.run("found = asked().collect()")
    (drawn,) = [each for each in shown.displays.values() if len(each) > 1]
    texts = [each["text/plain"] for each in drawn]
    assert any(re.search(r"prompt gpt-5-mini +\d+ of 400 answered", text) for text in texts)
    assert re.fullmatch(r"✓ 400 rows in [\d.]+ s, 60,000 tokens, \$0\.05", texts[-1])
    assert drawn[-1]["text/html"].startswith('<pre style="font-family:monospace;')
    assert not shown.printed


def test_two_queries_of_a_cell_have_a_display_each(notebook: Notebook) -> None:
    lines = [drawn[-1]["text/plain"] for drawn in notebook.run(TWO_QUERIES).displays.values() if len(drawn) > 1]
    assert len(lines) == 2
    assert all(line.startswith("✓ 400 rows in") and "$0.05" in line for line in lines)


def test_statistics_are_a_text_table(notebook: Notebook) -> None:
    (result,) = notebook.run("asked().limit(5).collect().stats()").results
    assert "prompt gpt-5-mini" in result["text/plain"]
    (result,) = notebook.run(FAILING_STATS).results
    assert "1 row failed, see" in result["text/plain"]
    assert max(map(len, result["text/plain"].splitlines())) <= 120  # a page would break longer lines inside a word


def test_the_files_of_a_write_are_counted(notebook: Notebook, tmp_path: Path) -> None:
    (result,) = notebook.run(f"df.limit(30).write_parquet({str(tmp_path / 'out')!r}, rows_per_file=10)").results
    assert "(3 rows)" in result["text/plain"]
    assert "(3 rows)" in result["text/html"]


def test_an_interrupt_leaves_one_line_and_the_frame_of_the_cell(notebook: Notebook, server: str) -> None:
    interrupts = iter([notebook.manager.interrupt_kernel])  # one

    def interrupt(text: str) -> None:
        if "answered" in text and " 0 of 400 answered" not in text:
            next(interrupts, lambda: None)()

    shown = notebook.run("asked().collect()", interrupt)
    (drawn,) = [each for each in shown.displays.values() if len(each) > 1]
    line = r"✗ stopped after [\d.]+ m?s: \d+ of 400 rows answered, \d+ calls, [\d,]+ tokens, \$[\d.]+"
    assert re.fullmatch(line, drawn[-1]["text/plain"])
    assert "KeyboardInterrupt" in shown.traceback
    assert "asked().collect()" in shown.traceback
    assert "penstock/" not in shown.traceback
    assert counts(server)["requests"]


@pytest.mark.parametrize("code", ['df.select("txt")', 'df["txt"]', 'df.where(ps.col("txt") == "a").collect()'])
def test_a_mistyped_column_shows_the_frame_of_the_cell(notebook: Notebook, code: str) -> None:
    traceback = notebook.run(code).traceback
    assert code in traceback
    assert "'txt' not found" in traceback
    assert "Did you mean 'text'?" in traceback
    assert "penstock/" not in traceback
