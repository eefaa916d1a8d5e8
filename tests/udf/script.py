"""Run a script of a user's in a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_script(folder: Path, script: str, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` as a file in ``folder``, beside its modules, from another working folder."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "main.py").write_text(script)
    command = [sys.executable, "-u", "-W", "error", str(folder / "main.py")]
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
