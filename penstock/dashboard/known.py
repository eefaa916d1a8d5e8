"""The jobs and dashboards of this machine: each job and each dashboard of a process notes where it is.

A note is a small file in the cache folder of the user. The note of a process holds the token of its dashboard, so only
the user may read it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import orjson

from penstock.io.consistent_listing import JOB_FOLDER
from penstock.storage.urls import redacted

MAX_JOBS = 200
MAX_WAIT_S = 0.5  # for the dashboard of another process


def note_job(root: str) -> None:
    """Remember a job of this machine."""
    if redacted(root) == root:
        _write(f"job-{hashlib.sha256(root.encode()).hexdigest()[:24]}", {"root": root, "at": time.time()})


def known_jobs() -> list[str]:
    """Return the jobs of this machine, the latest first. Jobs whose folder is gone are forgotten."""
    found = sorted(_notes("job-"), key=lambda note: -note[1]["at"])
    kept = [(file, note) for file, note in found if "://" in note["root"] or Path(note["root"], JOB_FOLDER).is_dir()]
    for file in {file for file, _ in found} - {file for file, _ in kept[:MAX_JOBS]}:
        file.unlink(missing_ok=True)
    return [note["root"] for _, note in kept[:MAX_JOBS]]


def note_process(url: str) -> None:
    """Remember the dashboard of this process."""
    _write(f"process-{os.getpid()}", {"url": url, "program": " ".join(map(redacted, sys.argv))[:300]})


def forget_process() -> None:
    (_folder() / f"process-{os.getpid()}.json").unlink(missing_ok=True)


def queries_of_processes() -> list[dict[str, Any]]:
    """Return the queries that other processes of this machine show, each with the URL of its page."""
    queries = []
    for file, note in _notes("process-"):
        address, token = urldefrag(note["url"])
        asked = urllib.request.Request(f"{address}api/home", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(asked, timeout=MAX_WAIT_S) as answer:
                found = orjson.loads(answer.read())["queries"]
        except ConnectionRefusedError:
            file.unlink(missing_ok=True)
        except (OSError, ValueError):  # it is busy
            continue
        else:
            link = f"{address}?query={{}}#{token}"
            queries += [each | {"link": link.format(each["id"]), "program": note["program"]} for each in found]
    return queries


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home).absolute() / "penstock" / "dashboard"


def _write(name: str, note: dict[str, Any]) -> None:
    with suppress(OSError):  # a home that cannot be written to remembers nothing
        _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(_folder() / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(orjson.dumps(note))


def _notes(kind: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in _folder().glob(f"{kind}*.json"):
        with suppress(OSError, ValueError):  # it is being written
            yield file, orjson.loads(file.read_bytes())
