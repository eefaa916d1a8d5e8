"""What docs/MEDIA.md shows runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

SAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "MEDIA.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_sample_runs(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAMPLES[number]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout, "a sample shows something"
