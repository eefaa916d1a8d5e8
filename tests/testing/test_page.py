"""What docs/TESTING.md shows runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import faults
from tests.architecture.imports import ROOT

PAGE = (ROOT / "docs" / "TESTING.md").read_text()
SAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_sample_runs(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAMPLES[number]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout, "a sample shows something"


def test_every_fault_is_on_the_page() -> None:
    kinds = [kind.__name__ for kind in faults.Fault.__subclasses__()]
    assert [name for name in kinds if f"`{name}(" not in PAGE] == []
