"""What the README and the pages for users show runs, and what the README links to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

README = (ROOT / "README.md").read_text()
PAGES = ("FILES", "MEDIA", "MODELS", "PROMPTS", "TESTING")
TEXT = README + "".join((ROOT / "docs" / f"{page}.md").read_text() for page in PAGES)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL))
def test_an_example_runs(code: str, run_page: Callable[[str], str]) -> None:
    Path("examples").symlink_to(ROOT / "examples")
    assert run_page(code), "an example shows something"


def test_quickstart_shows_the_table_and_writes_parquet() -> None:
    script = ROOT / "examples" / "quickstart.py"
    result = subprocess.run([sys.executable, script, "48"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "sentiment" in result.stdout
    assert "Nearest to 'burns my food'" in result.stdout
    assert "48 reviews embedded and classified" in result.stdout
    assert list((ROOT / "demo-output" / "reviews").glob("**/*.parquet"))


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_readme_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
