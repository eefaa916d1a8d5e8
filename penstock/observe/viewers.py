"""The viewer of queries and jobs. It lives in a layer above the engine, so the engine loads it by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from penstock.protocols import Subscriber

if TYPE_CHECKING:
    from penstock.plan.nodes import Plan

VIEWER = "penstock.dashboard"


class JobWatch(Subscriber, Protocol):
    """A Subscriber that keeps the viewer's notes about one job and passes on orders that people give in the viewer."""

    def note(self) -> None:
        """Record the current figures."""

    def close(self, error: BaseException | None = None) -> None:
        """Record how the job ended, and take no more orders."""


def watch_query() -> Subscriber:
    """Show a new query of this process."""
    return cast(Subscriber, import_module(VIEWER).watch_query())


def watch_job(plan: Plan, notes: object) -> JobWatch:
    """Watch a run of a job that computes ``plan``. The viewer keeps its own notes in the folder of the job."""
    return cast(JobWatch, import_module(VIEWER).watch_job(plan, notes))
