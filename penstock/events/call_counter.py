"""Counts the calls of one stage while they run, so that progress need not wait for the bundle that holds their rows."""

from __future__ import annotations

from contextvars import ContextVar

from penstock.events.latency import NUM_DURATIONS, duration_index


class CallCounter:
    """The calls of a stage so far. The thread of the calls writes, others may read.

    A row is answered when its call succeeds, or when it needs no call: a ledger has the answer, or its value is null.
    A condition chose ``num_chosen`` rows for calls and left out ``num_left_out``, which never count as answered.
    ``num_calls`` calls are under way. A client of an API also counts its requests, and some requests repeat a call:
    ``num_requests`` are under way, ``num_replies`` were answered. ``reply_s`` is the sum of the seconds they took,
    ``reply_s2`` the sum of the squares, ``reply_times`` counts them by duration (see ``latency``). With ``is_stored`` a
    ledger keeps the answers.
    """

    __slots__ = (
        *("is_stored", "num_answered", "num_calls", "num_chosen", "num_failed", "num_left_out", "num_replies"),
        *("num_requests", "reply_s", "reply_s2", "reply_times"),
    )

    def __init__(self) -> None:
        self.is_stored = False
        self.num_answered = self.num_failed = self.num_calls = 0
        self.num_chosen = self.num_left_out = 0
        self.num_requests: int | None = None  # None if no client counts them
        self.num_replies = 0
        self.reply_s = self.reply_s2 = 0.0
        self.reply_times = [0] * NUM_DURATIONS

    def count_reply(self, seconds: float) -> None:
        self.num_replies += 1
        self.reply_s += seconds
        self.reply_s2 += seconds * seconds
        self.reply_times[duration_index(seconds)] += 1

    @property
    def num_in_flight(self) -> int:
        """The number of running requests, or of running calls if the function is no client of an API."""
        return self.num_calls if self.num_requests is None else self.num_requests


_current: ContextVar[CallCounter | None] = ContextVar("penstock_call_counter", default=None)


def count_calls_in(counter: CallCounter) -> None:
    """Count the calls made in the current context in ``counter``."""
    _current.set(counter)


def current_call_counter() -> CallCounter:
    """Return the counter of the current context, or a new one if no stage makes calls here."""
    return _current.get() or CallCounter()
