"""Object stores and web servers as Arrow file systems; paths are URLs without their scheme."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from penstock.errors import PathNotFoundError
from penstock.storage.access import ANYTHING
from penstock.storage.object_stores import Entry, ObjectStore
from penstock.storage.remote_file import Version
from penstock.storage.stores import RangeStore, object_store, open_store

STREAM_NBYTES = 8 * 2**20  # one request reads this much of a file that is read from start to end


class StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """Reads and lists through Penstock's stores. The methods that write refuse, because ``penstock.io.writer``
    writes."""

    def __init__(self, scheme: str, options: Mapping[str, Any]) -> None:
        self.scheme = scheme
        self.options = dict(options)
        self.versions: dict[str, Version] = {}  # by path; Arrow's FileInfo has no field for them

    def get_type_name(self) -> str:
        return f"penstock+{self.scheme}"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        bucket, _, prefix = selector.base_dir.partition("/")
        store = object_store(self.scheme, bucket, self.options)
        found = store.list_below(prefix) if selector.recursive else store.list_folder(prefix)
        return [self._entry_info(bucket, entry) for entry in found]

    def open_input_stream(self, path: str) -> Any:
        return self._open(path, STREAM_NBYTES)

    def open_input_file(self, path: str) -> Any:
        return self._open(path, STREAM_NBYTES // 8)

    def _open(self, path: str, buffer_size: int) -> Any:
        store, key = open_store(f"{self.scheme}://{path}", self.options, ANYTHING)
        return pa.PythonFile(store.open(key, buffer_size), mode="r")

    def _info(self, path: str) -> Any:
        store, key = open_store(f"{self.scheme}://{path}", self.options, ANYTHING)
        if key and not key.endswith("/"):
            with suppress(PathNotFoundError):
                assert isinstance(store, RangeStore)
                self.versions[path] = store.version(key)
                return fs.FileInfo(path, fs.FileType.File, size=self.versions[path].size)
        if isinstance(store, ObjectStore) and store.has_any(key):
            return fs.FileInfo(path, fs.FileType.Directory)
        return fs.FileInfo(path, fs.FileType.NotFound)

    def _entry_info(self, bucket: str, entry: Entry) -> Any:
        path = f"{bucket}/{entry.key}"
        if entry.size is None:
            return fs.FileInfo(path, fs.FileType.Directory)
        if entry.version is not None:
            self.versions[path] = entry.version
        return fs.FileInfo(path, fs.FileType.File, size=entry.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreHandler) and (self.scheme, self.options) == (other.scheme, other.options)

    __hash__ = None  # type: ignore[assignment]

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("files are written by penstock.io.writer")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse


def arrow_filesystem(scheme: str, options: Mapping[str, Any]) -> Any:
    """Return the ``pyarrow.fs.FileSystem`` for the scheme of an object store or web server."""
    return fs.PyFileSystem(StoreHandler(scheme, options))
