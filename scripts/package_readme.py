"""The README as a package index shows it, where no file of the repository stands beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = r"\]\((?!https?:|#)([^)]+)\)"


class PackageReadme(MetadataHookInterface):  # type: ignore[misc]  # hatchling has no types
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["readme"] = {"content-type": "text/markdown", "text": package_readme()}


def package_readme() -> str:
    """Return the README without pictures, and with the paths of pages, which the source archive has, as text."""
    text = re.sub(r"\n!\[[^\]]*" + RELATIVE + "\n", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return re.sub(r"\[([^\]]+)" + RELATIVE, r"\1 (`\2`)", text)
