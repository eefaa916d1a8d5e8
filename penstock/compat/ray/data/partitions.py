"""Partitions of files by folders ``key=value``: ``Partitioning`` and ``PathPartitionFilter`` of Ray Data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.compat.translation import refusal
from penstock.io.hive import partition_values


class PartitionStyle(StrEnum):
    """The meaning of folders: ``key=value``, or values alone, which is refused."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclass(frozen=True)
class Partitioning:
    """Folders whose names are columns."""

    style: str = PartitionStyle.HIVE
    base_dir: str | None = None
    field_names: Sequence[str] | None = None
    field_types: Any = None
    filesystem: Any = None

    def __post_init__(self) -> None:
        if self.style != PartitionStyle.HIVE or self.base_dir or self.field_names:
            raise refusal(f"{self}", "only 'hive' partitioning of the whole path is known")


@dataclass(frozen=True)
class PathPartitionFilter:
    """A choice of files: ``filter_fn`` gets the values in the folders of each as text."""

    filter_fn: Callable[[dict[str, Any]], bool]

    @staticmethod
    def of(filter_fn: Callable[[dict[str, Any]], bool], *scheme: Any, **options: Any) -> PathPartitionFilter:
        Partitioning(*scheme, **options)
        return PathPartitionFilter(filter_fn)

    def __call__(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if self.filter_fn(partition_values(path))]


def is_hive(given: Any) -> bool:
    """Return True for a scheme of hive; others are refused."""
    return bool(Partitioning(getattr(given, "style", given)))


def partition_types(paths: Sequence[str], scheme: Any) -> dict[str, Any]:
    """Return the types of the columns in the paths: text, unless the scheme gives another."""
    given = getattr(scheme, "field_types", None) or {}
    return {key: given.get(key, str) for path in paths for key in partition_values(path)}
