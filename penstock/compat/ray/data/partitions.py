"""Partitions of files by their folders: ``Partitioning`` of Ray Data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.compat.ray.data.resource_options import check_filesystem
from penstock.compat.translation import refusal
from penstock.io.hive import partition_values


class PartitionStyle(StrEnum):
    """The meaning of folders: ``key=value``, or values alone."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclass
class Partitioning:
    """Folders whose names are columns. ``field_names`` names the columns of the style ``dir``; None skips a folder."""

    style: str
    base_dir: str | os.PathLike[str] | None = ""
    field_names: Sequence[str | None] | None = None
    field_types: dict[str, Any] | None = field(default_factory=dict)
    filesystem: Any = None

    def __post_init__(self) -> None:
        check_filesystem("Partitioning", self.filesystem)
        self.base_dir, self.field_types = os.fspath(self.base_dir or ""), self.field_types or {}


def is_hive(given: Any) -> bool:
    """Return True for a hive scheme that covers the whole path; refuse other schemes, which readers do not know."""
    if getattr(given, "style", given) != PartitionStyle.HIVE or getattr(given, "base_dir", ""):
        raise refusal(f"reading with {given}", "readers know only 'hive' partitioning of the whole path")
    return True


def partition_types(paths: Sequence[str], scheme: Any, own_types: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the types of the columns in the paths: as in the scheme, or in the first file itself, otherwise text."""
    keys = {key: None for path in paths for key in partition_values(path)}
    own = own_types(paths[0]) if keys else {}
    given = {**own, **(getattr(scheme, "field_types", None) or {})}
    return {key: given.get(key, str) for key in keys}
