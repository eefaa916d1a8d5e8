"""Object stores and web servers as Arrow knows file systems: paths are URLs without their scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs as fs

from penstock.errors import PathNotFoundError
from penstock.storage.access import ANYTHING
from penstock.storage.http import HttpStore
from penstock.storage.objects import Entry, ObjectStore
from penstock.storage.stores import object_store, open_store
from penstock.storage.versions import Version

STREAM_NBYTES = 8 * 2**20  # what a file that is read from start to end asks for at once


class StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """Reads and lists through our stores. Writing has a way of its own, so those methods refuse."""

    def __init__(self, scheme: str, options: Mapping[str, Any]) -> None:
        self.scheme = scheme
        self.options = dict(options)
        self.can_list = scheme not in ("http", "https")
        self.versions: dict[str, Version] = {}  # of the files that were asked for; Arrow has no place for them

    def get_type_name(self) -> str:
        return f"penstock+{self.scheme}"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        bucket, _, prefix = selector.base_dir.partition("/")
        store = self._bucket(bucket)
        found = store.list_below(prefix) if selector.recursive else store.list_folder(prefix)
        return [self._entry_info(bucket, entry) for entry in found]

    def open_input_stream(self, path: str) -> Any:
        return pa.PythonFile(self.open_python(path, STREAM_NBYTES), mode="r")

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(self.open_python(path, STREAM_NBYTES // 8), mode="r")

    def open_python(self, path: str, buffer_size: int) -> BinaryIO:
        """Open for reading at any position, as Python has files."""
        store, key = open_store(f"{self.scheme}://{path}", self.options, ANYTHING)
        return store.open(key, buffer_size)

    def _info(self, path: str) -> Any:
        store, key = open_store(f"{self.scheme}://{path}", self.options, ANYTHING)
        is_file = key and not key.endswith("/")
        try:
            if is_file:
                if isinstance(store, ObjectStore | HttpStore):
                    self.versions[path] = store.version(key)
                else:
                    self.versions[path] = Version(store.size(key))
                return fs.FileInfo(path, fs.FileType.File, size=self.versions[path].size)
        except PathNotFoundError:
            pass
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

    def _bucket(self, bucket: str) -> ObjectStore:
        return object_store(self.scheme, bucket, self.options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreHandler) and (self.scheme, self.options) == (other.scheme, other.options)

    __hash__ = None  # type: ignore[assignment]

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("files are written by penstock.io.writer")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse


def arrow_filesystem(scheme: str, options: Mapping[str, Any]) -> Any:
    """Return the ``pyarrow.fs.FileSystem`` for a scheme of ours."""
    return fs.PyFileSystem(StoreHandler(scheme, options))
