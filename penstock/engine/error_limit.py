"""Limits on the failed rows of a stage, past which the query stops: ``max_errors``, or a circuit breaker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from penstock.errors import ContentFilteredError, TooManyErrorsError, shortened
from penstock.events.events import RowError
from penstock.plan.stages import CallBatch, CallUdf

MIN_ROWS = 100  # a fraction of fewer rows says little
NEARLY_ALL = 0.95  # share of the recent rows that fail for the same reason, from which the breaker trips
MAX_INPUT = 500  # characters of a row's values in a message
JUDGED = ContentFilteredError.__name__
"""A filter judges each row by itself, so any number of such rows is a result and trips no breaker."""


class ErrorLimit:
    """Counts the failed rows of one stage and raises TooManyErrorsError when they end the query."""

    def __init__(self, work: CallUdf | CallBatch) -> None:
        policy = work.spec.policy
        self._max_errors = policy.max_errors
        self._breaker = None if policy.breaker_rows is None else Breaker(policy.breaker_rows)
        self._num_errors = 0
        self._first: RowError | None = None
        self._last: RowError | None = None

    def add(self, errors: tuple[RowError, ...], num_rows_done: int, num_rows_taken: int) -> None:
        """Record the failed rows of a report, and how many rows have got a result or an error since the last report."""
        if errors:
            self._first, self._last = self._first or errors[0], errors[-1]
            self._num_errors += len(errors)
        if self._breaker is not None and self._breaker.add(num_rows_done, [error.error_type for error in errors]):
            self._trip(self._breaker)
        if errors and (isinstance(self._max_errors, int) or num_rows_taken >= MIN_ROWS):
            self.check(num_rows_taken)

    def check(self, num_rows_taken: int) -> None:
        """Raise TooManyErrorsError past ``max_errors``. Called at the end too: a fraction is not judged early."""
        if self._first is None or not is_too_many(self._max_errors, self._num_errors, num_rows_taken):
            return
        first = self._first
        raise TooManyErrorsError(
            f"UDF {first.operator!r} failed on {self._num_errors} of {num_rows_taken} rows, which is more than "
            f"max_errors={self._max_errors}. The first: {first.error_type}: {first.message.rstrip('.')}, "
            f"given {shortened(first.input, MAX_INPUT)} in {first.place}"
        )

    def _trip(self, breaker: Breaker) -> None:
        last = self._last
        assert last is not None
        raise TooManyErrorsError(
            f"UDF {last.operator!r} failed on {breaker.num_failed:,} of its last {breaker.num_rows:,} rows with "
            f"{breaker.reason}, so the query stops. The last: {last.message.rstrip('.')}, "
            f"given {shortened(last.input, MAX_INPUT)} in {last.place}\n"
            'Remove the cause and run again; a job continues where it stopped, and resume="errors" repeats its failed '
            "rows. To continue regardless of failures, set max_errors=None."
        )


def is_too_many(max_errors: int | float | None, num_errors: int, num_rows_taken: int) -> bool:
    """Decide whether errors exceed their limit, a count or a fraction of the rows taken.

    >>> is_too_many(2, 3, 3), is_too_many(0.5, 1, 3), is_too_many(0.5, 60, 100), is_too_many(None, 9, 9)
    (True, False, True, False)
    """
    if max_errors is None:
        return False
    return num_errors > (max_errors if isinstance(max_errors, int) else max_errors * num_rows_taken)


class Breaker:
    """A circuit breaker: it looks at the last tasks of a stage, as many as have ``num_rows`` rows together.

    >>> breaker = Breaker(100)
    >>> breaker.add(90, ["ValueError"] * 90), breaker.add(10, ["ValueError"] * 6), breaker.add(90, ["ValueError"] * 90)
    (False, True, True)
    """

    def __init__(self, num_rows: int) -> None:
        self._min_rows = num_rows
        self._recent: deque[tuple[int, Counter[str]]] = deque()
        self._reasons: Counter[str] = Counter()
        self._early: Counter[str] = Counter()  # rows of tasks that are not done yet
        self.num_rows = 0  # of recent tasks
        self.num_failed = 0  # the failed rows with the most frequent reason
        self.reason = ""

    def add(self, num_rows: int, reasons: Iterable[str]) -> bool:
        """Add the rows of a task, and the error class of each failed row. Return True if the query must stop."""
        self._early.update(reason for reason in reasons if reason != JUDGED)
        if not num_rows:
            return False
        counted, self._early = self._early, Counter()
        self._recent.append((num_rows, counted))
        self.num_rows += num_rows
        self._reasons.update(counted)
        while self.num_rows - self._recent[0][0] >= self._min_rows:
            num_old, old = self._recent.popleft()
            self.num_rows -= num_old
            self._reasons.subtract(old)
        self.reason, self.num_failed = max(self._reasons.items(), key=lambda item: item[1], default=("", 0))
        return self.num_rows >= self._min_rows and self.num_failed >= NEARLY_ALL * self.num_rows
