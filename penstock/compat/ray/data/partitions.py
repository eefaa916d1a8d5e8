"""Partitions of files by their folders: ``Partitioning`` of Ray Data, and its parser."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

import penstock as ps
from penstock.compat.ray.data.resource_options import check_filesystem
from penstock.compat.translation import refusal
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, check_choice
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


class PathPartitionParser:
    """The values in the folders of a path, below ``base_dir`` if there is one.

    >>> PathPartitionParser.of("dir", "/data", ["kind", "year"], {"year": int})("/data/dog/2024/1.png")
    {'kind': 'dog', 'year': 2024}
    """

    @staticmethod
    def of(
        style: str = PartitionStyle.HIVE, base_dir: str | None = None, field_names: Sequence[str | None] | None = None,
        field_types: dict[str, Any] | None = None, filesystem: Any = None,
    ) -> PathPartitionParser:  # fmt: skip
        return PathPartitionParser(Partitioning(style, base_dir, field_names, field_types, filesystem))

    def __init__(self, partitioning: Partitioning) -> None:
        check_choice("Partitioning: style", partitioning.style, list(PartitionStyle))
        if partitioning.style == PartitionStyle.DIRECTORY and not partitioning.field_names:
            raise InvalidArgumentError("Partitioning of the style 'dir' needs field_names=, the names of its folders.")
        self.scheme = partitioning

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the values by name; none for a path outside ``base_dir``."""
        base = str(self.scheme.base_dir)
        base = f"{base.rstrip('/')}/" if base else ""
        if not path.startswith(base):
            return {}
        folders = [folder for folder in path.removeprefix(base).split("/")[:-1] if folder]
        is_hive = self.scheme.style == PartitionStyle.HIVE
        values: dict[str, Any] = self._by_key(folders) if is_hive else self._by_position(folders)
        types = self.scheme.field_types or {}
        return values | {name: _converted(values[name], dtype) for name, dtype in types.items()}

    def evaluate_predicate_on_partition(self, path: str, predicate: ps.Expression) -> bool:
        """Return False if no row of the file can meet a condition on the values in its path."""
        values = self(path)
        try:
            return bool(values) and ps.from_pylist([values]).where(predicate).count_rows() > 0
        except ColumnNotFoundError:  # the condition is on columns of the file
            return True

    def _by_key(self, folders: Sequence[str]) -> dict[str, str]:
        pairs = [folder.split("=") for folder in folders if folder.count("=") == 1]
        found = {key: unquote(value) for key, value in pairs}
        if found and self.scheme.field_names and list(found) != list(self.scheme.field_names):
            raise self._mismatch(list(found))
        return found

    def _by_position(self, folders: Sequence[str]) -> dict[str, str]:
        names = self.scheme.field_names or ()
        if folders and len(folders) != len(names):
            raise self._mismatch(folders)
        return {name: folder for name, folder in zip(names, folders, strict=False) if name is not None}

    def _mismatch(self, found: Sequence[str]) -> InvalidArgumentError:
        return InvalidArgumentError(f"Partitioning has field_names={self.scheme.field_names!r}; the path has {found!r}")


def _converted(value: str, dtype: Any) -> Any:
    if dtype is bool:
        return value.lower() == "true"
    return dtype(value) if dtype in (int, float) else value


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
