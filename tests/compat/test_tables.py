"""The tables of the migration pages are those of the adapters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_tables_are_current() -> None:
    script = Path(__file__).parents[2] / "scripts" / "generate_compat_tables.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
