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
LOCAL = [example for example in EXAMPLES if "embed_text(" in example]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the examples, where output may be written."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("source", [each for each in EXAMPLES if each not in LOCAL])
def test_readme_example_runs(source: str, checkout: Path) -> None:
    result = subprocess.run([sys.executable, "-c", source], cwd=checkout, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout, "an example shows something"


@pytest.mark.parametrize("source", LOCAL)
def test_readme_example_with_a_local_model_runs(
    source: str, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has loaded torch; the quickstart loads it in a process of its own."""
    monkeypatch.chdir(checkout)
    exec(source, {"__name__": "__main__"})
    assert capsys.readouterr().out, "an example shows something"


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
