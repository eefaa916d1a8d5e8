"""What happens in a query, as data. The executor publishes; progress, statistics and viewers subscribe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageInfo:
    """A stage as people see it; ``total_rows`` is None where it cannot be known ahead.

    A stage that writes gives a record for each file; ``writes`` is the stage whose rows they hold, which people count.
    """

    index: int
    name: str
    total_rows: int | None = None
    writes: int | None = None


@dataclass(frozen=True, slots=True)
class QueryStarted:
    stages: tuple[StageInfo, ...]
    time_s: float


@dataclass(frozen=True, slots=True)
class BundleProduced:
    """A stage gave one bundle; ``busy_s`` is what the worker spent on it."""

    stage: int
    num_rows: int
    nbytes: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class RowError:
    """A row on which a function failed, where that is tolerated; ``input`` is what the function was given, as JSON.

    Where that is not short text or numbers, such columns of the row that are at hand are there too, to find it by.
    ``row`` is its place in the input of the stage; None where several were tried together and failed.
    """

    operator: str
    input: str
    error_type: str
    message: str
    traceback: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class RowsFailed:
    """Rows of a stage that gave null or nothing, as their function failed on them."""

    stage: int
    errors: tuple[RowError, ...]


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage has given all its rows; ``batch_rows`` is the batch size it found, if it looked for one."""

    stage: int
    time_s: float
    batch_rows: int | None = None


@dataclass(frozen=True, slots=True)
class QueryFinished:
    """The query ended; ``error`` is None when it ran to its end or had all the rows it needed."""

    error: BaseException | None
    time_s: float


Event = QueryStarted | BundleProduced | RowsFailed | StageFinished | QueryFinished
