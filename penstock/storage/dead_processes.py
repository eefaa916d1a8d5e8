"""Tell whether the process of a lease or a lock is gone."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def process_identity() -> dict[str, Any]:
    """Return a text that identifies this process among all others, for ``has_ended``."""
    return {"machine": machine_id(), "pid": os.getpid(), "started": process_start(os.getpid())}


def has_ended(identity: Mapping[str, Any]) -> bool:
    """Return whether a process has ended; False if it ran on another machine.

    >>> has_ended(process_identity()), has_ended(process_identity() | {"started": "long ago"})
    (False, True)
    """
    if identity.get("machine") != machine_id():
        return False
    return not process_exists(int(identity.get("pid", 0)), identity.get("started"))


def machine_id() -> str:
    """Return an id of the machine, its boot and the container, within which a process id is unique."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def process_exists(pid: int, started: str | None = None) -> bool:
    """Return whether a process runs on this machine; with ``started``, whether it also started at that time."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    began = process_start(pid)
    return began != "ended" and (started is None or began is None or began == started)


def process_start(pid: int) -> str | None:
    """Return the time when a process began, "ended" if only its parent still knows it; None if it is unknown."""
    try:
        # The name of the program, in parentheses, may contain spaces: state is the first field behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if fields[0] in "ZX" else fields[19]
