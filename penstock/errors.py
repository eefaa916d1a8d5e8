"""Every error that penstock raises.

    PenstockError
    |-- PlanError                   the query is wrong; raised on the line that builds it
    |   |-- ColumnNotFoundError
    |   |-- TypeMismatchError
    |   `-- InvalidArgumentError
    |-- ComputeError                a value cannot be computed: an overflow, text that does not parse
    |-- ReadError                   an input cannot be read
    |   |-- PathNotFoundError
    |   |-- CorruptFileError
    |   |-- ForbiddenUrlError       the settings forbid a URL in the data
    |   `-- StoreUnavailableError   a store does not answer, or asks to retry later
    |-- WriteError                  an output cannot be written
    |   |-- OutputExistsError
    |   `-- JobError                a job cannot be started or resumed in this folder
    |       |-- JobRunningError     another process runs it
    |       `-- JobChangedError     the query differs from the one that started it
    |-- FatalError                  not about the row: ends the query regardless of on_error; user code may raise it
    |   |-- LedgerError             a ledger of finished calls cannot be opened or written
    |   `-- ProviderUnusableError   see below
    |-- UdfError                    user code failed on a row or a batch
    |   `-- TooManyErrorsError      more rows failed than max_errors allows, or nearly all recent ones
    |-- WorkerDiedError             a worker process ended during a task
    |   `-- WorkerGoneError         it ended before it got the task
    |-- QueryCancelledError         the query was stopped before it finished
    |-- QueryStalledError           no task has given anything for stall_timeout
    |-- MissingExtraError           an optional dependency is not installed
    |-- ProviderError               a model, or its server, refuses or fails
    |   |-- ProviderUnusableError   a FatalError: every row would fail
    |   |   |-- AuthenticationError   the key is missing or refused (401, 403)
    |   |   |-- QuotaExceededError    the account has no credit left (402)
    |   |   |-- UnreachableError      nothing answers at the address
    |   |   |-- OutageError           the server fails on every request: 5xx, time-outs, dropped connections
    |   |   |-- WaitTooLongError      the server asks for a longer wait than ten minutes
    |   |   `-- BudgetSpentError      the next call would exceed budget=
    |   |-- RequestRefusedError     the request is wrong (400, 413, 422)
    |   |   `-- ModelNotFoundError    the server does not have the model, or no such API (404, 405, redirects)
    |   |-- RateLimitedError        too many requests (429)
    |   |-- ProviderUnavailableError  5xx, time-outs, dropped connections
    |   |-- InvalidAnswerError      an answer is malformed, or does not match the requested format
    |   |   `-- AnswerTooLargeError   an answer has more than max_response_bytes
    |   `-- ContentFilteredError    the model, or its content filter, declined
    `-- RetryAfterError             raised by user code: call again later

A message says what is wrong, where, and what to do about it. Where Python has a class for a failure, the error is an
instance of it too: a PlanError is a ValueError, an InvalidArgumentError also a TypeError, a ColumnNotFoundError also a
KeyError, a ReadError or WriteError an OSError, a CorruptFileError also a ValueError.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep  # frames of other files are the user's


def users_frame() -> FrameType:
    """Return the frame of the user's code that called Penstock."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame = frame.f_back
    return frame


class PenstockError(Exception):
    """The root of every error that penstock raises on purpose."""


class PlanError(PenstockError, ValueError):
    """The query is wrong as written."""


MAX_NAMES = 500  # characters of the names of columns in a message


class ColumnNotFoundError(PlanError, KeyError):
    """The input has no column of this name."""

    lines: tuple[str, ...] = ()  # of the user, for an error that is found when the query runs

    def __init__(self, name: str, available: Iterable[str], where: str = "") -> None:
        super().__init__(name, tuple(available), where)

    @property
    def column(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        name, available, where = self.args
        place = f" in {where}" if where else ""
        known = f"available: {shortened(', '.join(available), MAX_NAMES)}" if available else "there are no columns"
        message = f"Column {name!r} not found{place}; {known}."
        named = f" It is named in {' and in '.join(self.lines)}." if self.lines else ""
        return f"{message}{did_you_mean(name, available)}{named}"


class TypeMismatchError(PlanError, TypeError):
    """An expression does not accept the type of an argument."""


class NoSuchPartError(TypeMismatchError, AttributeError):
    """A type lacks a part, such as the fields of an integer."""


class InvalidArgumentError(PlanError, TypeError):
    """An argument has an invalid value, or is of a wrong type; the message lists what is valid."""


class ComputeError(PenstockError, ValueError):
    """A value cannot be computed: an overflow, a conversion that does not fit, text that does not parse."""


class ReadError(PenstockError, OSError):
    """An input cannot be read."""


class PathNotFoundError(ReadError, FileNotFoundError):
    """A path or pattern matches nothing."""


class CorruptFileError(ReadError, ValueError):
    """A file exists but its content cannot be parsed; the message names file and line or row group."""


class ForbiddenUrlError(ReadError, PermissionError):
    """A URL leads to a local file or a private address, and the settings forbid that."""


class StoreUnavailableError(ReadError):
    """A store does not answer, breaks off, or asks to retry later."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class WriteError(PenstockError, OSError):
    """An output cannot be written."""


class OutputExistsError(WriteError, FileExistsError):
    """``mode="create"`` found a folder that already holds data."""


class JobError(WriteError):
    """A job cannot be started or resumed in this folder."""


class JobRunningError(JobError):
    """Another process runs the job."""


class JobChangedError(JobError):
    """The query differs from the one that started the job; the message lists the changes."""


class FatalError(PenstockError):
    """A failure that is not about the row. It ends the query regardless of ``on_error``, and is not retried.

    Raise it in user code when every further row would fail too, such as for a database that is gone. Finished work is
    kept: run a write with ``resume=True`` again to continue.
    """


class LedgerError(FatalError, OSError):
    """A ledger of finished calls cannot be opened or written."""


class UdfError(PenstockError):
    """User code raised; the original exception is the ``__cause__``.

    The error is also an instance of that exception's class: ``except KeyError`` around ``collect()`` catches it.
    """


class TooManyErrorsError(UdfError):
    """More rows failed than ``max_errors`` allows, or nearly all recent ones for the same reason."""


class RetryAfterError(PenstockError):
    """Raise this in user code to be called again after some seconds; this counts as one of the call's ``max_retries``.

    ``original`` is the exception that caused it; its message is the reason.

    >>> str(RetryAfterError(1.5, "429 Too Many Requests"))
    'asked to be called again after 1.5 s: 429 Too Many Requests'
    """

    def __init__(self, seconds: float, reason: str = "", *, original: BaseException | None = None) -> None:
        reason = reason or str(original or "")
        super().__init__(seconds, reason)
        self.__cause__ = original
        self.seconds = float(seconds)
        if not 0 <= self.seconds < math.inf:
            raise InvalidArgumentError(f"RetryAfterError takes a number of seconds, 0 or more; got {seconds!r}")
        self.reason = reason

    def __str__(self) -> str:
        return f"asked to be called again after {self.seconds:g} s" + (f": {self.reason}" if self.reason else "")


class WorkerDiedError(PenstockError):
    """A worker process ended without an answer."""


class WorkerGoneError(WorkerDiedError):
    """A worker process ended before it got its task, so the task is not the cause."""


class QueryCancelledError(PenstockError):
    """The query was stopped before it finished."""


class QueryStalledError(PenstockError):
    """No task of a query has given anything for ``stall_timeout`` seconds."""


class MissingExtraError(PenstockError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, feature: str) -> None:
        super().__init__(f'{feature} needs {package!r}, which is not installed. Run: pip install "penstock[{extra}]"')


def load_extra(module: str, extra: str, feature: str) -> Any:
    """Import a module of an optional package, or raise an error with the command that installs it.

    >>> load_extra("no_such_package.part", "lance", "read_lance")
    Traceback (most recent call last):
    ...
    penstock.errors.MissingExtraError: read_lance needs 'no_such_package', which is not installed.
    Run: pip install "penstock[lance]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingExtraError(module.partition(".")[0], extra, feature) from exc


def require_extra(module: str, extra: str, feature: str) -> None:
    """Raise MissingExtraError unless a package is installed. Does not import it."""
    try:
        is_installed = importlib.util.find_spec(module) is not None
    except ValueError:  # sys.modules has None for it
        is_installed = False
    if not is_installed:
        raise MissingExtraError(module, extra, feature)


class ProviderError(PenstockError):
    """A model, or the server it runs on, refuses or fails."""


class ProviderUnusableError(ProviderError, FatalError):
    """Every row would fail the same way, so the query ends regardless of ``on_error``."""


class AuthenticationError(ProviderUnusableError):
    """The key is missing or refused: 401, 403."""


class QuotaExceededError(ProviderUnusableError):
    """The account has no credit left; waiting does not help."""


class UnreachableError(ProviderUnusableError):
    """Nothing answers at the address, or nothing has answered for ten minutes."""


class OutageError(ProviderUnusableError):
    """The server fails on every request: 5xx, time-outs, dropped connections."""


class WaitTooLongError(ProviderUnusableError):
    """The server asks for a longer wait than ten minutes, or refused every request for so long."""

    retry_after_s: float | None = None


class BudgetSpentError(ProviderUnusableError):
    """The next call would exceed ``budget=``. Answers received before remain cached.

    ``budget`` and ``spent`` are dollars; ``num_calls`` calls were made for them.
    """

    def __init__(self, message: str, budget: float = 0.0, spent: float = 0.0, num_calls: int = 0) -> None:
        super().__init__(message, budget, spent, num_calls)
        self.budget, self.spent, self.num_calls = budget, spent, num_calls

    def __str__(self) -> str:
        return str(self.args[0])


class RequestRefusedError(ProviderError):
    """The server rejects the request: 400, 413, 422."""

    status: int | None = None


class ModelNotFoundError(RequestRefusedError):
    """The server does not have the model, or its API is not at this address: 404, 405, redirects."""


class RateLimitedError(ProviderError):
    """The server receives too many requests: 429."""

    retry_after_s: float | None = None


class ProviderUnavailableError(ProviderError):
    """The server fails or does not answer: 408, 409, 5xx, time-outs, dropped connections.

    ``is_overload`` is True for 503, 529 and time-outs, which an overloaded server gives to any request. ``num_lost`` is
    the number of connections that ended together with this one, itself included, if it ended before the answer.
    """

    retry_after_s: float | None = None
    is_overload: bool = False
    is_time_out: bool = False
    num_lost: int = 0


class InvalidAnswerError(ProviderError):
    """An answer is malformed, or does not match the requested format."""


class AnswerTooLargeError(InvalidAnswerError):
    """An answer has more bytes than the setting ``max_response_bytes`` allows. It is not asked for again."""


class ContentFilteredError(ProviderError):
    """The model, or its content filter, declined to answer; the message says why."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest option, or an empty string if all are far.

    >>> did_you_mean("promt", ["prompt", "id"])
    " Did you mean 'prompt'?"
    """
    import difflib

    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(what: str, value: Any, choices: Iterable[str]) -> None:
    """Raise an error that lists the choices unless ``value`` is one of them.

    >>> check_choice("mode", "overwrit", ("create", "append", "overwrite"))
    Traceback (most recent call last):
    ...
    penstock.errors.InvalidArgumentError: mode='overwrit' is not known; use one of create, append, overwrite.
    Did you mean 'overwrite'?
    """
    if value not in (names := list(choices)):
        hint = did_you_mean(str(value), names)
        raise InvalidArgumentError(f"{what}={value!r} is not known; use one of {', '.join(names)}.{hint}")


def shortened(text: str, length: int = 80) -> str:
    """Return text on one line of at most ``length`` characters, for a message.

    >>> shortened("a long\\nvalue", 9)
    'a long...'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."
