"""Find the files that a path, a list, a pattern or a folder stands for, in a fixed order."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from penstock.errors import InvalidArgumentError, PathNotFoundError, did_you_mean
from penstock.io.consistent_listing import (
    JOB_FOLDER,
    MANIFEST,
    STAGING_FOLDER,
    is_local_commit_abandoned,
    is_stored_commit_abandoned,
    local_manifests,
    quiet_since,
    settled,
)
from penstock.io.data_file import DataFile, Storage
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import WEB, local_path, redacted, scheme_of, short_path

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_MAGIC = re.compile(r"[*?\[]")
MAX_SHOWN = 5  # names in a message


def is_hidden(name: str) -> bool:
    """Return whether a scan skips a file or folder of this name; it never skips hive folders.

    >>> [is_hidden(name) for name in ("_SUCCESS", ".crc", "_key=1", "a.parquet")]
    [True, True, False, False]
    """
    return name.startswith(("_", ".")) and "=" not in name


def find_files(
    paths: Paths,
    suffixes: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    descend: bool = True,
    hidden: bool = False,
) -> tuple[DataFile, ...]:
    """Return the files of each of ``paths`` in turn, sorted by path.

    A folder stands for the visible files below it that have one of ``suffixes``, or for all of them if no file has one.
    So does a folder that matches a pattern, unless ``descend`` is false. With ``hidden``, patterns match hidden names
    too, and a folder stands for the files in it, not below it.
    """
    options = storage_options or {}
    return tuple(file for name in path_list(paths) for file in _find(name, suffixes, options, descend, hidden))


def path_list(paths: Paths) -> list[str]:
    """Return the paths that a user gave; raise an error for anything else."""
    given: Any = paths
    is_one = isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable)
    names = [given] if is_one else list(given)
    for name in names:
        if not isinstance(name, str | os.PathLike):
            raise InvalidArgumentError(f"path={paths!r} must be text, a Path or a list of them; got {name!r}.")
    if not names:
        raise InvalidArgumentError("No path given; name at least one file, folder or pattern.")
    return [os.fspath(name) for name in names]


def folder_of(name: str) -> str:
    """Return the folder that a user's path names, or that contains a pattern or a file, with a slash at its end.

    >>> folder_of("s3://bucket/data/*/year=*/a.parquet"), folder_of("/data/k=1")
    ('bucket/data/', '/data/k=1/')
    """
    local = local_path(name)
    path = name.partition("://")[2].removeprefix("anonymous@") if local is None else os.path.abspath(local)
    magic = _MAGIC.search(path)
    return path[: magic.start()].rpartition("/")[0] + "/" if magic else path.rstrip("/") + "/"


def short_name(paths: Sequence[str], files: Sequence[DataFile]) -> str:
    """Return a short name for the files found at ``paths``: a file, a folder, a pattern, or their number."""
    if len(paths) > 1:
        return f"{len(files):,} files" if len(files) > 1 else short_path(files[0].url)
    path = paths[0]
    is_file = path.rpartition("/")[2] == files[0].url.rpartition("/")[2] or "?" in path
    return short_path(path, is_folder=not is_file and not _MAGIC.search(path))


def _find(
    name: str, suffixes: Sequence[str], options: Mapping[str, Any], descend: bool, hidden: bool
) -> list[DataFile]:
    storage, path = _split_url(name, options)
    filesystem = storage.open()
    is_pattern = bool(_MAGIC.search(path)) and not storage.is_web
    info = filesystem.get_file_info(path)
    if _is_file(info):
        found = [info]
    elif _is_folder(info) and hidden:
        found = [child for child in _children(filesystem, path) if _is_file(child)]
    elif _is_folder(info):
        found = _folder_files(storage, filesystem, path, suffixes)
    else:
        matches = list(_expand(filesystem, path, hidden)) if is_pattern else []
        files = [match for match in matches if _is_file(match)]
        for match in matches if descend else ():
            if _is_folder(match):
                files.extend(_folder_files(storage, filesystem, match.path, suffixes))
        found = _each_once(filesystem, files)
    if not found:
        raise PathNotFoundError(_not_found(storage, filesystem, name, path, _is_folder(info)))
    return [DataFile(storage, match.path, match.size, _version(storage, filesystem, match)) for match in found]


def _each_once(filesystem: Any, files: Sequence[Any]) -> list[Any]:
    """Return the files sorted by path, each once, even if links to folders show it again."""
    real_folders: dict[str, str] = {}
    unique: dict[str, Any] = {}
    for file in files:
        folder, name = posixpath.split(file.path)
        if folder not in real_folders:
            real_folders[folder] = _real_path(filesystem, folder)
        if folder == real_folders[folder]:
            unique[file.path] = file
        else:
            unique.setdefault(posixpath.join(real_folders[folder], name), file)
    return sorted(unique.values(), key=attrgetter("path"))


def _version(storage: Storage, filesystem: Any, info: Any) -> str:
    """Return the version of a remote file; empty for a local one, which is inspected on demand."""
    if storage.is_native:
        return str(filesystem.handler.versions.get(info.path, ""))
    if storage.is_local or info.mtime is None:
        return ""
    return f"{info.size} bytes, modified {info.mtime}"


def _split_url(name: str, options: Mapping[str, Any]) -> tuple[Storage, str]:
    """Return the storage of a user's path, and the path in it."""
    local = local_path(name)
    if local is not None:
        return Storage(), os.path.abspath(local)
    protocol, path = scheme_of(name), name.partition("://")[2]
    if path.startswith("anonymous@"):  # as in the examples of Ray Data
        path, options = path.removeprefix("anonymous@"), {"anon": True, **options}
    return Storage(protocol, StorageOptions.of(options)), path if protocol in WEB else path.rstrip("/")


def _is_file(info: Any) -> bool:
    # A remote store may list entries of unknown type; those can at least be opened.
    return info.size is not None or bool(info.type.name in ("File", "Unknown"))


def _is_folder(info: Any) -> bool:
    return info.size is None and bool(info.type.name == "Directory")  # reading the type takes as long as listing a file


def _children(filesystem: Any, folder: str) -> list[Any]:
    """Return the sorted entries of a folder; an empty list for a path that is not a folder."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(folder or "/", allow_not_found=True)
    try:
        return sorted(filesystem.get_file_info(selector), key=attrgetter("path"))
    except NotADirectoryError:
        return []


def _folder_files(storage: Storage, filesystem: Any, folder: str, suffixes: Sequence[str]) -> list[Any]:
    if storage.is_local:
        found = _local_files(filesystem, folder)
    elif storage.is_native:
        found = _listed_files(filesystem, folder)
    else:
        found = list(_walk_files(filesystem, folder))
    files = sorted(found, key=attrgetter("path"))
    matching = [info for info in files if info.path.lower().endswith(tuple(suffixes))]
    return matching or files


def _local_files(filesystem: Any, folder: str) -> list[Any]:
    """Return the files below a folder on disk, as one version of it."""
    since = quiet_since(folder)  # each write makes and removes a folder there
    files = list(_walk_files(filesystem, folder))
    if since is not None and since == quiet_since(folder):
        return files
    return settled(
        lambda: list(_walk_files(filesystem, folder)),
        lambda: any(map(os.path.exists, local_manifests(folder))),
        lambda: any(map(is_local_commit_abandoned, local_manifests(folder))),
        folder,
    )


def _walk_files(filesystem: Any, folder: str) -> Iterator[Any]:
    for _, entries in _walk_folders(filesystem, folder):
        yield from (info for info in entries if not _is_folder(info))


def _listed_files(filesystem: Any, folder: str) -> list[Any]:
    """Return the files below a folder of an object store, all from the same version, although a request lists only a
    thousand.
    """
    import pyarrow.fs

    own: list[str] = []  # the files of writes and jobs, as of the last listing

    def visible() -> list[Any]:
        own.clear()
        found = []
        for info in filesystem.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True)):
            below = info.path[len(folder) :].strip("/").split("/")
            if below[0] in (JOB_FOLDER, STAGING_FOLDER):
                own.append(info.path)
            elif not any(is_hidden(name) for name in below):
                found.append(info)
        return found

    files = visible()
    if not own:
        return files

    def manifests() -> list[str]:
        return [path for path in own if posixpath.basename(path) == MANIFEST]

    def read(path: str) -> bytes:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())

    def is_abandoned() -> bool:
        return any(is_stored_commit_abandoned(each, own, read) for each in manifests())

    return settled(visible, lambda: bool(manifests()), is_abandoned, folder)


def _walk_folders(filesystem: Any, folder: str, hidden: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """Yield a folder and the folders below it, each once, with their entries; links to folders last.

    Entries are left out if their names are hidden, unless ``hidden`` is true.
    """
    folders, links, seen = [folder], list[str](), set[str]()
    while folders or links:
        path = folders.pop() if folders else links.pop()
        if (real := _real_path(filesystem, path)) in seen:
            continue
        seen.add(real)
        entries = [info for info in _children(filesystem, path) if hidden or not is_hidden(info.base_name)]
        yield path, entries
        for info in filter(_is_folder, entries):
            is_link = filesystem.type_name == "local" and os.path.islink(info.path)
            (links if is_link else folders).append(info.path)


def _real_path(filesystem: Any, path: str) -> str:
    return os.path.realpath(path) if filesystem.type_name == "local" else path


def _expand(filesystem: Any, pattern: str, hidden: bool) -> Iterator[Any]:
    """Yield the matching files and folders; list only folders that can match, one path segment at a time.

    ``*``, ``?`` and ``[...]`` stay within a segment and match a hidden name only if they begin with its first
    character, or if ``hidden`` is true; ``**`` spans any number of folders.
    """
    segments = pattern.split("/")
    fixed = next(index for index, segment in enumerate(segments) if _MAGIC.search(segment))
    yield from _expand_below(filesystem, "/".join(segments[:fixed]), segments[fixed:], hidden)


def _expand_below(filesystem: Any, folder: str, segments: list[str], hidden: bool) -> Iterator[Any]:
    segment, rest = segments[0], segments[1:]
    if segment == "**":
        for below, entries in _walk_folders(filesystem, folder, hidden):
            if rest:
                yield from _expand_below(filesystem, below, rest, hidden)
            else:
                yield from (info for info in entries if not _is_folder(info))
        return
    if not _MAGIC.search(segment):
        path = f"{folder}/{segment}"
        if rest:
            yield from _expand_below(filesystem, path, rest, hidden)
        elif filesystem.get_file_info(path).type.name != "NotFound":
            yield filesystem.get_file_info(path)
        return
    matches = re.compile(fnmatch.translate(segment)).match
    for info in _children(filesystem, folder):
        is_left_out = is_hidden(info.base_name) and segment[0] not in "_." and not hidden
        if is_left_out or not matches(info.base_name):
            continue
        if not rest:
            yield info
        elif _is_folder(info):
            yield from _expand_below(filesystem, info.path, rest, hidden)


def _not_found(storage: Storage, filesystem: Any, name: str, path: str, is_empty_folder: bool) -> str:
    """Return the message for a missing path, with the most similar name in its folder."""
    if is_empty_folder:
        return f"Folder {name!r} holds no files (names that begin with '_' or '.' are skipped)."
    magic = None if storage.is_web else _MAGIC.search(path)
    what = f"No file matches {redacted(name)!r}" if magic else f"Path {redacted(name)!r} does not exist"
    if storage.is_web:
        return f"{what}; a web server lists no files, so name each file."
    folder = posixpath.dirname(path[: magic.start()] if magic else path)
    try:
        siblings = [info.base_name for info in _children(filesystem, folder)]
    except (OSError, ValueError):  # a store that has only folders with data, such as the Hugging Face hub
        siblings = []
    hint = did_you_mean(posixpath.basename(path), siblings)
    if magic and not hint:
        visible = [sibling for sibling in siblings if not is_hidden(sibling)]
        shown = ", ".join(visible[:MAX_SHOWN]) + (" and others" if len(visible) > MAX_SHOWN else "")
        hint = f" Folder {folder!r} " + (f"holds {shown}." if shown else "does not exist, or is empty.")
    return f"{what}.{hint}"
