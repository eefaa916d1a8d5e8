"""What the README and the pages for users show runs, and what the README links to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

README = (ROOT / "README.md").read_text()
PAGES = README + "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("FILES", "MODELS", "PROMPTS"))
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGES, flags=re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the examples, where output may be written."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.timeout(240)  # some load torch, which takes its time on a busy machine
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_readme_example_runs(number: int, checkout: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], cwd=checkout, capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout, "an example shows something"


@pytest.mark.timeout(240)
def test_quickstart_shows_the_table_and_writes_parquet() -> None:
    script = ROOT / "examples" / "quickstart.py"
    result = subprocess.run([sys.executable, script, "48"], capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert "sentiment" in result.stdout
    assert "Nearest to 'burns my food'" in result.stdout
    assert "48 reviews embedded and classified" in result.stdout
    assert list((ROOT / "demo-output" / "reviews").glob("**/*.parquet"))


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_readme_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
