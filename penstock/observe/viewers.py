"""The viewer of queries and jobs. It lives in a layer above the engine, so the engine loads it by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.protocols import Subscriber

if TYPE_CHECKING:
    from penstock.plan.nodes import Plan

VIEWER = "penstock.dashboard"


class JobNotes(Protocol):
    """The small JSON documents in the folder of a job."""

    @property
    def root(self) -> str:
        """The folder or URL of the job."""

    @property
    def poll_interval_s(self) -> float | None:
        """Seconds between two reads of a note that another process may have written; None if this process may not write
        notes."""

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a note, None if it does not exist."""

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a note."""


class JobWatch(Subscriber, Protocol):
    """A Subscriber that keeps the viewer's notes about one job and passes on orders that people give in the viewer."""

    def note(self) -> None:
        """Record the current figures."""

    def close(self, error: BaseException | None = None) -> None:
        """Record how the job ended, and take no more orders."""


class Viewer(Protocol):
    """The module of a viewer."""

    def watch_query(self) -> Subscriber:
        """Show a new query of this process."""

    def watch_job(self, plan: Plan, notes: JobNotes) -> JobWatch:
        """Watch a run of a job that computes ``plan``."""


def viewer() -> Viewer:
    """Load the viewer."""
    return cast(Viewer, import_module(VIEWER))
