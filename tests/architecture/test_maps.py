"""The docstring of each folder's ``__init__.py`` is its map: it names the modules and the folders in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.imports import PACKAGE, ROOT


def parts_of(folder: Path) -> set[str]:
    """Return the names of the modules and of the sub-folders of a folder."""
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    return modules | {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}


def unnamed(folder: Path) -> list[str]:
    """Return the parts of a folder that its map does not name."""
    init = folder / "__init__.py"
    text = ast.get_docstring(ast.parse(init.read_text())) if init.exists() else None
    return sorted(parts_of(folder) - set(re.findall(r"[a-z_0-9]+", text or "")))


def test_every_folder_has_a_map_of_its_modules() -> None:
    folders = {path.parent for path in (ROOT / PACKAGE).rglob("*.py")} - {ROOT / PACKAGE}
    missing = {str(folder.relative_to(ROOT)): parts for folder in sorted(folders) if (parts := unnamed(folder))}
    assert missing == {}
