"""Make files on the local disk survive a crash of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SYNC_THREADS = 32  # a file system writes concurrent requests to disk together


def sync_folder(folder: str | Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folders: Iterable[str]) -> None:
    """Make the names in some folders durable."""
    with ThreadPoolExecutor(SYNC_THREADS) as threads:
        list(threads.map(sync_folder, folders))


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content atomically: after a crash it has the old or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    sync_folder(path.parent)
