"""The Python that ``make`` uses: the first of at least 3.11 on the PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(folder: Path, versions: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in a PATH with nothing but fake interpreters of these versions."""
    for name, version in versions.items():
        is_old = int(version.split(".")[1]) < 11
        (folder / name).write_text(f"#!/bin/sh\nexit {int(is_old)}\n")
        (folder / name).chmod(0o755)
    program = shutil.which("make")
    assert program is not None
    command = [program, "-C", str(ROOT), f"VENV={folder}/venv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(folder)}, check=False)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"python3.11": "3.11", "python3.12": "3.12"}, "python3.11"),
        ({"python3.10": "3.10", "python3.13": "3.13", "python3": "3.10"}, "python3.13"),
        ({"python3.14": "3.14"}, "python3.14"),
        ({"python3": "3.15"}, "python3"),
    ],
)
@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_takes_the_first_python_that_is_new_enough(
    tmp_path: Path, versions: dict[str, str], chosen: str, target: str
) -> None:
    planned = make(tmp_path, versions, "--dry-run", target).stdout
    assert f"\n{chosen} -m venv " in planned
    assert "\n/my/python -m venv " in make(tmp_path, versions, "--dry-run", target, "PYTHON=/my/python").stdout


def test_without_a_python_one_line_says_so(tmp_path: Path) -> None:
    run = make(tmp_path, {"python3": "3.10"}, "demo")
    assert run.returncode != 0
    said, made = run.stderr.strip().splitlines()
    assert said == (
        "Penstock needs Python 3.11 or later, and none is on the PATH. Install it, or set PYTHON=/path/to/python."
    )
    assert made.startswith("make")
    assert "venv" not in run.stdout.replace("Entering directory", "")
