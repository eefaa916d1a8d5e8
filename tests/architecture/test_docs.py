"""The site builds without a warning, and every block of Python on a page runs and prints what the page shows.

``PENSTOCK_WRITE_OUTPUTS=1 pytest tests/architecture/test_docs.py`` writes what the blocks print into the pages.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest

import penstock as ps
from examples import offline
from penstock.testing import ModelServer
from tests.architecture.imports import PACKAGE, ROOT

cloudpickle.register_pickle_by_value(offline)  # the model server is a process of its own

PAGES = sorted(page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if "```python" in page.read_text())
BLOCK = re.compile(
    r'^```python(?: title="([^"]*)")?\n(.*?)^```\n(?:\n```text title="Output"\n(.*?)^```\n)?', re.MULTILINE | re.DOTALL
)
NOT_RUN = {
    "Part of a script",
    "Needs a GPU",
    "Needs a cluster",
    "Needs a database",
    "Needs a download",
    "Needs an account",
}
"""Titles that a reader sees above a block that the test only compiles."""


@dataclass(frozen=True)
class Block:
    code: str
    title: str
    shown: str | None  # the output that the page shows
    place: tuple[int, int]  # of that output in the page


def blocks_of(text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        yield Block(found[2], found[1] or "", found[3], found.span(3))


def without_trailing_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of files that a page leaves open
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_on_a_page_runs_and_prints_what_the_page_shows(
    page: Path, run_block: Callable[[str], str], model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_server.change(answer=offline.answer)
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.openai_url)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_server.anthropic_url)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-docs")
    Path("examples").symlink_to(ROOT / "examples")
    text = page.read_text()
    printed = []
    for block in blocks_of(text):
        assert block.title in {*NOT_RUN, ""}, f"a block that does not run has one of the titles {NOT_RUN}"
        if block.title:
            compile(block.code, page.name, "exec")
        else:
            printed.append((block, without_trailing_blanks(run_block(block.code))))
    if os.environ.get("PENSTOCK_WRITE_OUTPUTS"):
        for block, output in reversed(printed):
            if block.shown is not None:
                start, end = block.place
                text = text[:start] + output + text[end:]
        page.write_text(text)
        return
    for block, output in printed:
        assert block.shown is None or output == block.shown, block.code


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert built.returncode == 0, built.stdout + built.stderr
    fetched = [
        f"{page.name}: {address}"
        for page in tmp_path.rglob("*.html")
        for address in re.findall(r'<(?:script|link|img)[^>]*?(?:src|href)="(https?://[^"]+)', page.read_text())
    ]
    assert fetched == [], "the site works without a network"
    reference = "".join(page.read_text() for page in (tmp_path / "reference").glob("*.html"))
    assert [name for name in ps.__all__ if f">ps.{name}<" not in reference and f">{name}<" not in reference] == []


def test_pages_that_messages_and_docstrings_name_exist() -> None:
    sources = (*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "scripts").glob("*.py"), *ROOT.glob("*.md"))
    missing = {
        f"{source.relative_to(ROOT)}: {page}"
        for source in sources
        for page in re.findall(r"\bdocs/[A-Za-z/_-]+\.(?:md|png|svg)", source.read_text())
        if not (ROOT / page).exists()
    }
    assert missing == set()


def test_links_lead_somewhere_for_readers_of_the_repository() -> None:
    home = ROOT / "docs" / "index.md"  # the front of the site, whose links lead to pages that the code writes
    pages = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")} - {home}
    broken = {
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)[)#]", page.read_text())
        if not (page.parent / target).exists()
    }
    assert broken == set()


def test_the_readme_of_the_package_has_no_relative_links() -> None:
    text = runpy.run_path(str(ROOT / "scripts" / "package_readme.py"))["package_readme"]()
    assert re.findall(r"\]\((?!https?:)", text) == []
    assert "durable jobs (`docs/guides/jobs.md`)" in text
