"""``import penstock`` is quick and loads nothing that only some users need."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.architecture.test_layers import HEAVY


def run_python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30).stdout


def import_seconds(modules: str) -> float:
    """Return the processor time one import takes: unlike wall time it does not mind a busy machine."""
    return float(
        run_python(f"import time; start = time.process_time(); import {modules}; print(time.process_time() - start)")
    )


def test_import_loads_no_heavy_package() -> None:
    loaded = set(json.loads(run_python("import json, sys, penstock; print(json.dumps(sorted(sys.modules)))")))
    assert not loaded & HEAVY


def test_import_takes_at_most_half_longer_than_arrow_and_numpy() -> None:
    runs = [(import_seconds("pyarrow, numpy"), import_seconds("penstock")) for _ in range(5)]
    arrow_s, penstock_s = (min(times) for times in zip(*runs, strict=True))
    assert penstock_s <= 1.5 * arrow_s
