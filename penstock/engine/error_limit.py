"""The limit on failed rows of a stage, past which the query stops."""

from __future__ import annotations

from penstock.errors import TooManyErrorsError
from penstock.observe.events import RowError
from penstock.plan.stages import CallBatch, CallUdf, Work

MIN_ROWS = 100  # a fraction of fewer rows says little


class ErrorLimit:
    """Counts the failed rows of one stage and raises once they exceed ``max_errors`` of its function."""

    def __init__(self, work: Work | None) -> None:
        self._max_errors = work.spec.policy.max_errors if isinstance(work, CallUdf | CallBatch) else None
        self._num_errors = 0
        self._first: RowError | None = None

    def add(self, errors: tuple[RowError, ...], num_rows_taken: int) -> None:
        self._first = self._first or errors[0]
        self._num_errors += len(errors)
        if isinstance(self._max_errors, int) or num_rows_taken >= MIN_ROWS:
            self.check(num_rows_taken)

    def check(self, num_rows_taken: int) -> None:
        """Raise TooManyErrorsError past the limit. Called at the end too: a fraction is not judged early."""
        if self._first is None or not is_too_many(self._max_errors, self._num_errors, num_rows_taken):
            return
        first = self._first
        raise TooManyErrorsError(
            f"UDF {first.operator!r} failed on {self._num_errors} of {num_rows_taken} rows, which is more than "
            f"max_errors={self._max_errors}. The first: {first.error_type}: {first.message}, given {first.input:.500}"
        )


def is_too_many(max_errors: int | float | None, num_errors: int, num_rows_taken: int) -> bool:
    """Decide whether errors exceed their limit, a count or a fraction of the rows taken.

    >>> is_too_many(2, 3, 3), is_too_many(0.5, 1, 3), is_too_many(0.5, 60, 100), is_too_many(None, 9, 9)
    (True, False, True, False)
    """
    if max_errors is None:
        return False
    return num_errors > (max_errors if isinstance(max_errors, int) else max_errors * num_rows_taken)
