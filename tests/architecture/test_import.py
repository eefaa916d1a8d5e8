"""``import penstock`` is quick and loads nothing that only some users need."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.architecture.test_layers import HEAVY


def run_python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30).stdout


def test_import_loads_no_heavy_package() -> None:
    loaded = set(json.loads(run_python("import json, sys, penstock; print(json.dumps(sorted(sys.modules)))")))
    assert not loaded & HEAVY
