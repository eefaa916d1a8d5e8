"""Datasinks of Ray Data that write files into a local folder: one for each block, or one for each row."""

from __future__ import annotations

import os
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.compat.ray.data.custom import Datasink
from penstock.compat.ray.data.filenames import FilenameProvider
from penstock.compat.ray.data.resource_options import check_filesystem, check_placement
from penstock.compat.translation import refusal
from penstock.storage.urls import local_path


class BlockAccessor:
    """Some rows, in the forms that ``write_block_to_file`` asks for."""

    def __init__(self, block: pa.Table) -> None:
        self._block = block

    def to_arrow(self) -> pa.Table:
        return self._block

    def to_pandas(self) -> Any:
        return self._block.to_pandas()

    def num_rows(self) -> int:
        return int(self._block.num_rows)

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        return iter(self._block.to_pylist())


class FileDatasink(Datasink):
    """A folder of files, which are complete when the write ends without an error."""

    def __init__(
        self, path: str | os.PathLike[str], *, file_format: str | None = None,
        filename_provider: FilenameProvider | None = None, filesystem: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        check_filesystem(type(self).__name__, filesystem)
        check_placement(type(self).__name__, options)
        target = local_path(os.fspath(path).removeprefix("local://"))
        if target is None:
            raise refusal(f"{type(self).__name__}({path!r})", "write to a local folder")
        self.path, self.file_format, self._run = target, file_format, uuid.uuid4().hex
        self.filename_provider = filename_provider or FilenameProvider(file_format=file_format)

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def write(self, blocks: Iterable[pa.Table], ctx: Any) -> None:
        name = self.filename_provider.get_filename_for_task(self._run, ctx.task_idx)
        self._write_block(pa.concat_tables(blocks), os.path.join(self.path, name))

    @abstractmethod
    def _write_block(self, block: pa.Table, path: str) -> None: ...


class BlockBasedFileDatasink(FileDatasink):
    """A file for each block of rows."""

    @abstractmethod
    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None: ...

    def _write_block(self, block: pa.Table, path: str) -> None:
        with pa.OSFile(path, "wb") as file:
            self.write_block_to_file(BlockAccessor(block), file)


class RowBasedFileDatasink(FileDatasink):
    """A file for each row."""

    @abstractmethod
    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None: ...

    def _write_block(self, block: pa.Table, path: str) -> None:
        base, suffix = os.path.splitext(path)
        for number, row in enumerate(BlockAccessor(block).iter_rows()):
            with pa.OSFile(f"{base}_000000_{number:06}{suffix}", "wb") as file:
                self.write_row_to_file(row, file)
