"""``column.pyi`` shows editors what ``Expression`` has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_stub_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_stubs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
