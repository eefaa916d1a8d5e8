"""The jobs of this machine: each job notes where it is, in a small file in the cache folder of the user."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from penstock.io.consistent_listing import JOB_FOLDER
from penstock.storage.urls import redacted

MAX_JOBS = 200


def note_job(root: str) -> None:
    """Remember a job of this machine."""
    if redacted(root) == root:
        with suppress(OSError):  # a home that cannot be written to remembers nothing
            _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            name = hashlib.sha256(root.encode()).hexdigest()[:24]
            (_folder() / f"job-{name}.json").write_bytes(orjson.dumps({"root": root, "at": time.time()}))


def known_jobs() -> list[str]:
    """Return the jobs of this machine, the latest first. Jobs whose folder is gone are forgotten."""
    found = sorted(_notes(), key=lambda note: -note[1]["at"])
    kept = [(file, note) for file, note in found if "://" in note["root"] or Path(note["root"], JOB_FOLDER).is_dir()]
    for file in {file for file, _ in found} - {file for file, _ in kept[:MAX_JOBS]}:
        file.unlink(missing_ok=True)
    return [note["root"] for _, note in kept[:MAX_JOBS]]


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home).absolute() / "penstock" / "dashboard"


def _notes() -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in _folder().glob("job-*.json"):
        with suppress(OSError, ValueError):  # it is being written
            yield file, orjson.loads(file.read_bytes())
