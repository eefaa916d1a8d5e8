"""Deaths of worker processes."""

from __future__ import annotations

import os
import signal


def die_once(flag: str) -> None:
    """Kill this process, unless a file says that it was done before."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
