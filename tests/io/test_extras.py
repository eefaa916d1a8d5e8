"""What is not installed is named, with the command that installs it."""

from __future__ import annotations

import json
import subprocess
import sys

CASES = [
    ("adbc_driver_postgresql", "sql", "ps.read_sql('SELECT 1', 'postgresql://localhost/db')"),
    ("sqlalchemy", "sql", "ps.read_sql('SELECT 1', 'mysql://localhost/db')"),
    ("lance", "lance", "ps.read_lance('x')"),
    ("lance", "lance", "ps.range(1).write_lance('x')"),
    ("deltalake", "deltalake", "ps.read_deltalake('x')"),
    ("pyiceberg", "iceberg", "ps.read_iceberg('x')"),
    ("huggingface_hub", "huggingface", "ps.read_huggingface('user/name')"),
    ("huggingface_hub", "huggingface", "ps.range(1).write_huggingface('user/name')"),
    ("ray", "ray", "ps.from_ray_dataset(None)"),
]

PROGRAM = """
import json, sys
cases = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(package for package, _, _ in cases))  # None: cannot be imported
import penstock as ps
for package, extra, code in cases:
    try:
        eval(code)
    except ImportError as exc:
        print(exc)
"""


def test_missing_packages_are_named() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=json.dumps(CASES), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(CASES), found
    for message, (package, extra, code) in zip(found, CASES, strict=True):
        remedy = f'needs {package!r}, which is not installed. Run: pip install "penstock[{extra}]"'
        assert message.endswith(remedy), f"{code}: {message}"
