"""Every error penstock raises, and the words they share.

    PenstockError
    |-- PlanError                   the query itself is wrong; raised on the line that builds it
    |   |-- ColumnNotFoundError
    |   |-- TypeMismatchError
    |   `-- InvalidArgumentError
    |-- ComputeError                a value cannot be computed: an overflow, text that does not parse
    |-- ReadError                   an input cannot be read
    |   |-- PathNotFoundError
    |   |-- CorruptFileError
    |   |-- ForbiddenUrlError       a URL that came with the data leads where it may not
    |   `-- StoreUnavailableError   a store does not answer, or asks to come back later
    |-- WriteError                  an output cannot be written
    |   `-- OutputExistsError
    |-- LedgerError                 a ledger of finished calls cannot be opened or written
    |-- UdfError                    user code failed on a row or a batch
    |   `-- TooManyErrorsError      more rows failed than max_errors allows
    |-- WorkerDiedError             a worker process ended without an answer
    |-- QueryCancelledError         the query was stopped before it was done
    |-- MissingExtraError           an optional dependency is not installed
    |-- ProviderError               a model, or the server it runs on, refuses or fails
    |   |-- ProviderUnusableError   no row would fare better: ends the query, whatever on_error says
    |   |   |-- AuthenticationError   the key is missing or refused (401, 403)
    |   |   |-- QuotaExceededError    the account has nothing left to spend
    |   |   |-- UnreachableError      nothing answers at the address
    |   |   `-- BudgetSpentError      the next call would pass budget=
    |   |-- RequestRefusedError     the request is wrong (400, 404, 413, 422)
    |   |-- RateLimitedError        too many requests (429)
    |   |-- ProviderUnavailableError  5xx, time-outs, dropped connections
    |   |-- InvalidAnswerError      an answer that is malformed, or does not match the schema
    |   `-- ContentFilteredError    the model, or a filter before it, declined
    `-- RetryAfterError             raised by user code: call again, but later

A message says what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


class PenstockError(Exception):
    """The root of every error that penstock raises on purpose."""


class PlanError(PenstockError, ValueError):
    """The query is wrong as written."""


class ColumnNotFoundError(PlanError):
    """A column is named that the input does not have."""

    def __init__(self, name: str, available: Iterable[str], where: str = "") -> None:
        names = list(available)
        place = f" in {where}" if where else ""
        listing = ", ".join(names) if names else "(none)"
        super().__init__(f"Column {name!r} not found{place}; available: {listing}.{did_you_mean(name, names)}")


class TypeMismatchError(PlanError, TypeError):
    """An expression is given a type it cannot work on."""


class InvalidArgumentError(PlanError):
    """An argument has a value that makes no sense; the message lists those that do."""


class ComputeError(PenstockError, ValueError):
    """A value cannot be computed: an overflow, a conversion that does not fit, text that does not parse."""


class ReadError(PenstockError, OSError):
    """An input cannot be read."""


class PathNotFoundError(ReadError, FileNotFoundError):
    """A path or pattern matches nothing."""


class CorruptFileError(ReadError):
    """A file exists but its content cannot be parsed; the message names file and line or row group."""


class ForbiddenUrlError(ReadError, PermissionError):
    """A URL leads to a local file or a private address, and the settings forbid that."""


class StoreUnavailableError(ReadError):
    """A store does not answer, breaks off, or asks to come back later: worth another try."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class WriteError(PenstockError, OSError):
    """An output cannot be written."""


class OutputExistsError(WriteError, FileExistsError):
    """``mode="create"`` met a folder that already holds data."""


class JobError(WriteError):
    """A job cannot be begun or resumed in this folder."""


class JobRunningError(JobError):
    """Another process is at work on the job."""


class JobChangedError(JobError):
    """The query is not the one that the job was begun with; the message says what changed."""


class LedgerError(PenstockError, OSError):
    """A ledger of finished calls cannot be opened or written."""


class UdfError(PenstockError):
    """User code raised; the original exception is the ``__cause__``."""


class TooManyErrorsError(UdfError):
    """More rows failed than ``max_errors`` allows."""


class RetryAfterError(PenstockError):
    """Raised by user code to be called again after so many seconds; one of the call's ``max_retries``.

    >>> str(RetryAfterError(1.5, "429 Too Many Requests"))
    'asked to be called again after 1.5 s: 429 Too Many Requests'
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(seconds, reason)
        self.seconds = float(seconds)
        if not 0 <= self.seconds < math.inf:
            raise InvalidArgumentError(f"RetryAfterError takes a number of seconds, 0 or more; got {seconds!r}")
        self.reason = reason

    def __str__(self) -> str:
        return f"asked to be called again after {self.seconds:g} s" + (f": {self.reason}" if self.reason else "")


class WorkerDiedError(PenstockError):
    """A worker process ended without an answer."""


class WorkerGoneError(WorkerDiedError):
    """A worker process had ended before it was asked: what it would have been asked is not to blame."""


class QueryCancelledError(PenstockError):
    """The query was stopped before it was done."""


class MissingExtraError(PenstockError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, feature: str) -> None:
        super().__init__(f'{feature} needs {package!r}, which is not installed. Run: pip install "penstock[{extra}]"')


class ProviderError(PenstockError):
    """A model, or the server it runs on, refuses or fails."""


class ProviderUnusableError(ProviderError):
    """No row would fare better than the one that met it, so the query ends, whatever ``on_error`` says."""


class AuthenticationError(ProviderUnusableError):
    """The key is missing or refused: 401, 403."""


class QuotaExceededError(ProviderUnusableError):
    """The account has nothing left to spend, which waiting does not change."""


class UnreachableError(ProviderUnusableError):
    """Nothing answers at the address, and nothing ever did."""


class BudgetSpentError(ProviderUnusableError):
    """The next call would cost more than ``budget=`` leaves. What was answered before is kept where answers are kept.

    ``budget`` and ``spent`` are dollars; ``num_calls`` were made for them.
    """

    def __init__(self, message: str, budget: float = 0.0, spent: float = 0.0, num_calls: int = 0) -> None:
        super().__init__(message, budget, spent, num_calls)
        self.budget, self.spent, self.num_calls = budget, spent, num_calls

    def __str__(self) -> str:
        return str(self.args[0])


class RequestRefusedError(ProviderError):
    """The server says that the request is wrong: 400, 404, 413, 422."""

    status: int | None = None


class RateLimitedError(ProviderError):
    """The server says that there are too many requests: 429."""

    retry_after_s: float | None = None


class ProviderUnavailableError(ProviderError):
    """The server fails or does not answer: 408, 409, 5xx, time-outs, dropped connections."""

    retry_after_s: float | None = None


class InvalidAnswerError(ProviderError):
    """An answer is malformed, or does not match the schema."""


class ContentFilteredError(ProviderError):
    """The model, or a filter before it, declined to answer; the message says why."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest option, or nothing if none is near.

    >>> did_you_mean("promt", ["prompt", "id"])
    " Did you mean 'prompt'?"
    """
    import difflib

    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
