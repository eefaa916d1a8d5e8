"""Samples of guides as their authors wrote them, run with the import line changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import penstock as ps

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = (
    (r"^import daft$", "import penstock as daft"),
    (r"^from daft\b", "from penstock"),
    (r"^import ray$", "import types\nimport penstock\nray = types.SimpleNamespace(data=penstock)"),
    (r"^from ray\.data\.llm\b", "from penstock.llm"),
)


def with_changed_imports(source: str) -> str:
    for pattern, ours in IMPORTS:
        source = re.sub(pattern, ours, source, flags=re.MULTILINE)
    return source


def run_sample(source: str, **names: Any) -> dict[str, Any]:
    """Run a sample and return its variables; ``names`` are those that the guide has defined before it."""
    variables: dict[str, Any] = {"daft": ps, "__name__": "sample", **names}
    exec(compile(with_changed_imports(source), "<sample>", "exec", dont_inherit=True), variables)
    return variables


def run_sample_apart(source: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a sample in a process of its own, in a folder, and return what it prints.

    For those that read from the Hugging Face hub: its library looks at the environment once, when it is imported.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    result = subprocess.run(
        [sys.executable, "-c", with_changed_imports(source)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PENSTOCK_PROGRESS": "0", "HF_HOME": str(folder / "hf"), **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
