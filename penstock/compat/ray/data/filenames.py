"""Names of written files, chosen by a ``FilenameProvider`` of Ray Data."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError
from penstock.frame.dataframe import DataFrame
from penstock.io.commit.output import writing
from penstock.io.formats.images import EncodedFiles
from penstock.io.writer import FileSink


class FilenameProvider:
    """The names of written files; subclasses override ``get_filename_for_task``."""

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """Return the name of a file; each index must give another name."""
        parts = [] if self.dataset_uuid is None else [self.dataset_uuid]
        suffix = "" if self.file_format is None else f".{self.file_format}"
        return "_".join([*parts, write_uuid, f"{task_index:06}"]) + suffix


@dataclass(frozen=True)
class NamedFileSink(FileSink):
    """A ``FileSink`` that renames its staged files before the commit.

    A file is a task of Ray Data. Images, one for each row, count as rows of the first task: ``<task>_000000_<row>``.
    """

    provider: Any = field(default=None, compare=False)

    def completed(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        files = super().completed(records)
        names = [self._name(number) for number in range(len(files))]
        targets = [os.path.join(os.path.dirname(file["path"]), name) for file, name in zip(files, names, strict=True)]
        for target, num_files in Counter(targets).items():
            if num_files > 1:
                name = os.path.basename(target)
                raise InvalidArgumentError(
                    f"filename_provider returns {name!r} for {num_files} files; put task_index into the name."
                )
        with writing(self.root):
            for file, target in zip(files, targets, strict=True):
                self.output.files.replace(target, file["path"])
        return [file | {"path": target} for file, target in zip(files, targets, strict=True)]

    def _name(self, number: int) -> str:
        is_of_row = isinstance(self.encoding, EncodedFiles)
        name = self.provider.get_filename_for_task(self.run_id, 0 if is_of_row else number)
        if not isinstance(name, str) or os.path.basename(name) in ("", ".", "..") or os.path.basename(name) != name:
            raise InvalidArgumentError(f"filename_provider returns {name!r}, which is not the name of a file.")
        base, suffix = os.path.splitext(name)
        return f"{base}_000000_{number:06}{suffix}" if is_of_row else name


def with_filenames(rows: DataFrame, provider: Any) -> DataFrame:
    """Return the rows as a DataFrame that writes files under the names of ``provider``."""
    if not hasattr(provider, "get_filename_for_task"):
        raise InvalidArgumentError(f"filename_provider must be a FilenameProvider; got {provider!r}.")

    class NamedWrites(type(rows)):  # type: ignore[misc]
        def write_sink(self, sink: FileSink, **options: Any) -> Any:
            if options.get("resume") or options.get("budget") is not None:
                raise refusal("filename_provider= of a job", "leave out resume= and budget=")
            fields = {each.name: getattr(sink, each.name) for each in dataclasses.fields(sink)}
            return super().write_sink(NamedFileSink(**fields, provider=provider), **options)

    named: DataFrame = NamedWrites(rows._plan)
    return named
