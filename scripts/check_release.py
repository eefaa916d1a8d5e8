"""Check what ``make release`` has built: the content of the archives, and that the wheel works in a new environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IN_SDIST = ("docs/index.md", "examples/quickstart.py", "tests/conftest.py", "CHANGELOG.md", "SECURITY.md", "mkdocs.yml")
IN_WHEEL = ("penstock/py.typed", "penstock/__init__.pyi", "penstock/cost/prices.json")
PROGRAM = "import penstock as ps; print(ps.__version__, ps.from_pydict({'x': [1]}).agg(ps.col('x').sum()).to_pydict())"


def main() -> None:
    [sdist], [wheel] = (ROOT / "dist").glob("*.tar.gz"), (ROOT / "dist").glob("*.whl")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
        [metadata] = [name for name in installed if name.endswith(".dist-info/METADATA")]
        readme = archive.read(metadata).decode()
    if "](docs/" in readme or "# Penstock" not in readme:
        sys.exit("the README of the wheel has relative links, or is missing")
    missing = [name for name in IN_SDIST if name not in packed] + [name for name in IN_WHEEL if name not in installed]
    strange = {name.split("/")[0] for name in installed} - {"penstock", f"{wheel.name.split('-py3')[0]}.dist-info"}
    if missing or strange:
        sys.exit(f"missing: {missing}; should not be in the wheel: {sorted(strange)}")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)
        python = f"{folder}/bin/python"
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wheel], check=True)
        subprocess.run([python, "-I", "-c", PROGRAM], check=True, cwd=folder)
        subprocess.run([f"{folder}/bin/penstock", "--version"], check=True, cwd=folder)
    for path in (sdist, wheel):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, checked")


if __name__ == "__main__":
    main()
