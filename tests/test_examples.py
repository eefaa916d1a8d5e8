"""Every example runs as it is, without a network, and prints what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

# The start of something that each example prints.
PRINTS = {
    "quickstart": "480 reviews embedded and classified",
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / f"{name}.py"
    environment = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_BASE_URL"))}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert PRINTS[name] in run.stdout, run.stdout
