"""Subscribers of the user, which receive the events of every query."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import InvalidArgumentError
from penstock.protocols import QuerySubscribers, Subscriber

if TYPE_CHECKING:
    from penstock.events.events import Event

log = logging.getLogger("penstock.observe")

_attached: list[Subscriber] = []


def attach_subscriber(subscriber: Subscriber) -> None:
    """Pass the events of every query that starts from now on to ``subscriber.on_event(event)``.

    ``penstock.events.events`` lists the events. The method runs on the thread of the query and must return quickly. If
    it raises, the error is logged and the subscriber gets no more events of the query.

    >>> class Printer:
    ...     def on_event(self, event):
    ...         if type(event).__name__ == "StageFinished":
    ...             print("finished stage", event.stage)
    >>> printer = Printer()
    >>> ps.attach_subscriber(printer)
    >>> df = ps.range(3).collect()
    finished stage 0
    >>> ps.detach_subscriber(printer)
    """
    if not callable(getattr(subscriber, "on_event", None)):
        raise InvalidArgumentError(
            f"attach_subscriber takes an object with a method on_event(event); got {type(subscriber).__name__}."
        )
    _attached.append(subscriber)


def detach_subscriber(subscriber: Subscriber) -> None:
    """Stop passing events to a subscriber, from the next query on."""
    if subscriber not in _attached:
        raise InvalidArgumentError("detach_subscriber got a subscriber that is not attached.")
    _attached.remove(subscriber)


def attached_subscribers() -> list[Subscriber]:
    return [_Guarded(each.for_query() if isinstance(each, QuerySubscribers) else each) for each in _attached]


class _Guarded:
    """A subscriber whose errors do not end the query."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber: Subscriber | None = subscriber

    def on_event(self, event: Event) -> None:
        if self._subscriber is None:
            return
        try:
            self._subscriber.on_event(event)
        except Exception:
            log.exception("%s failed and gets no more events of this query", type(self._subscriber).__name__)
            self._subscriber = None
