"""The list of jobs and running queries on this machine or in a folder, and a board for each job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from penstock.dashboard.job import JobBoard
from penstock.dashboard.known import known_jobs, queries_of_processes
from penstock.errors import InvalidArgumentError, PenstockError
from penstock.jobs.summary import roots_below

MAX_JOBS = 200


class HomeBoard:
    """Implements ``Board`` for many jobs: ``job`` names one of them, ``other`` another run to compare it with.

    It shows no other folder of the machine.
    """

    def __init__(self, folder: str | None) -> None:
        """Show the jobs in ``folder`` and below it; None shows the jobs of this machine."""
        self._folder = folder
        self._boards: dict[tuple[str, ...], JobBoard] = {}
        self._lock = threading.Lock()

    def home(self) -> dict[str, Any]:
        jobs = [self._summary(root) for root in self._roots()[:MAX_JOBS]]
        jobs.sort(key=lambda job: (job["state"] != "running", -job["started_at"]))
        return {"folder": self._folder, "jobs": jobs, "queries": [] if self._folder else queries_of_processes()}

    def state(self, asked: Mapping[str, str]) -> dict[str, Any]:
        if not asked.get("job"):
            return {"source": self._folder or "this machine", "has_home": True, "queries": [], "query": None}
        return self.shown(asked).state(asked) | {"has_home": True}

    def _roots(self) -> list[str]:
        return known_jobs() if self._folder is None else list(roots_below(self._folder))

    def shown(self, asked: Mapping[str, Any]) -> JobBoard:
        roots = tuple(asked[name] for name in ("job", "other") if asked.get(name))
        if roots not in self._boards and (unknown := set(roots) - set(self._roots())):
            raise InvalidArgumentError(f"The job {min(unknown)!r} is not listed here, or is gone.")
        return self._board_of(*roots)

    def _board_of(self, *roots: str) -> JobBoard:
        with self._lock:
            if roots not in self._boards:
                self._boards[roots] = JobBoard(roots)
            return self._boards[roots]

    def _summary(self, root: str) -> dict[str, Any]:
        try:
            return self._board_of(root).summary()
        except (PenstockError, OSError) as exc:
            unknown = dict.fromkeys(("elapsed_s", "left_s", "share", "dollars", "command"))
            figures = {"num_rows": 0, "num_failed": 0, "models": [], "started_at": 0.0}
            return {"id": 0, "name": root, "root": root, "state": "damaged", "error": str(exc), **unknown, **figures}
