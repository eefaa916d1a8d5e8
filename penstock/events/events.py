"""Events of a query, as data. The executor publishes; progress, statistics and viewers subscribe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.types.frozen import frozen

StageKind = Literal["read", "expressions", "function", "async function", "relation", "write", "limit", "concat"]
WaitingFor = Literal["input", "output", "workers"]


@frozen
class StageInfo:
    """A stage as users see it.

    A stage that writes gives a record for each file. Users count rows instead: the rows of the stage ``writes``.
    ``inputs`` are the indices of the stages before it. ``model`` is the provider and the name of the model that it
    calls by an API.
    """

    index: int
    name: str
    writes: int | None = None
    inputs: tuple[int, ...] = ()
    kind: StageKind = "expressions"
    model: tuple[str, str] | None = None


@frozen
class QueryStarted:
    stages: tuple[StageInfo, ...]
    time_s: float


@dataclass(frozen=True, slots=True)  # quicker to make than with ``frozen``: there is one for each output
class BundleProduced:
    """A stage produced one bundle, on which a worker spent ``busy_s``. A bundle without rows means that a task ended
    without output."""

    stage: int
    num_rows: int
    nbytes: int
    busy_s: float


@frozen
class RowError:
    """A failed row, as data. ``input`` holds the arguments of the function as JSON.

    If those are not short text or numbers, it also holds other columns of the row, so that the row can be found.
    ``row`` is its number in ``source``, counted from 0. The source is a file, "the input" if that has no name, or "the
    input of" the function if rows cannot be traced back further. ``position`` is its number in the input of the stage.
    They are None if unknown.
    """

    operator: str
    input: str
    error_type: str
    message: str
    traceback: str
    row: int | None = None
    source: str | None = None
    position: int | None = None

    @property
    def place(self) -> str:
        """The row in messages: ``row 17 of reviews.csv``."""
        return "a row" if self.row is None else f"row {self.row} of {self.source}"


@frozen
class RowsFailed:
    """Rows of a stage are null or missing because their function failed."""

    stage: int
    errors: tuple[RowError, ...]


@frozen
class StageFinished:
    """A stage has produced all its rows; ``batch_rows`` is the batch size found by measurement."""

    stage: int
    time_s: float
    batch_rows: int | None = None


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The calls of a stage so far: rows that are answered and failed, and calls under way.

    ``total_rows`` is the number of rows that the stage takes in all, except rows that a condition leaves out; None if
    unknown. ``num_replies`` requests to an API had an answer; ``reply_s`` and ``reply_s2`` add up the seconds that
    those took, and their squares, and ``reply_times`` counts them by duration (see ``latency``).
    """

    num_answered: int
    num_failed: int
    num_in_flight: int
    total_rows: int | None
    is_total_exact: bool
    num_replies: int = 0
    reply_s: float = 0.0
    reply_s2: float = 0.0
    reply_times: tuple[int, ...] = ()

    @property
    def num_done(self) -> int:
        return self.num_answered + self.num_failed


@dataclass(frozen=True, slots=True)  # quicker to make than with ``frozen``: there are many
class StageSample:
    """The state of a stage at one moment.

    It runs ``num_running`` tasks, of ``num_workers`` that it can run at once. Its queue holds inputs that no task has
    taken; ``nbytes_held`` also counts the inputs and outputs of its tasks. It waits for ``"input"``, for ``"workers"``
    (all are busy), or for ``"output"``: later stages or memory must make room. ``total_rows`` is the number of rows
    that it will produce, None if unknown. ``calls`` is None for a stage that does not count its calls.
    """

    stage: int
    num_running: int
    num_workers: int
    num_rows_queued: int
    nbytes_queued: int
    nbytes_held: int
    waiting_for: WaitingFor | None
    total_rows: int | None
    is_total_exact: bool
    calls: CallCounts | None = None


@frozen
class ModelSample:
    """The calls to a model so far, and the state of its limiter. ``dollars`` is None if the price is not known.

    A ledger answered ``num_cached`` calls. ``num_retried`` attempts failed and were repeated; the provider refused
    ``num_refused`` attempts because of a rate limit. At most ``num_allowed`` calls may be under way at once now (None
    without a limiter in this process), and ``num_waiting`` calls wait for that. It will never be more than
    ``max_allowed``. ``rate_limit`` says in words which rate calls wait for instead, such as "500 requests per minute".
    """

    provider: str
    model: str
    num_calls: int
    num_cached: int
    num_retried: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    num_refused: int = 0
    num_in_flight: int = 0
    num_waiting: int = 0
    num_allowed: int | None = None
    max_allowed: int | None = None
    rate_limit: str = ""


@frozen
class GpuUse:
    """The use of a GPU of this machine so far: the share of time it was busy, its peak memory, its mean power.

    ``busy_now`` is the share in the last sample.
    """

    gpu: str
    busy: float
    memory_bytes: int
    total_bytes: int
    power_w: float | None
    busy_now: float = 0.0


@frozen
class Measures:
    """Figures of a query that do not belong to a stage.

    ``counters`` and ``gauges`` are the user's ``ps.metrics``, added up over workers. ``rss_bytes`` is the memory of the
    driver's process. ``gpus`` are the GPUs of this machine, if a stage needs any. ``skipped_files`` are the paths of
    corrupt files, each with the reason, and whether rows before the damage remain.
    """

    models: tuple[ModelSample, ...] = ()
    counters: tuple[tuple[str, float], ...] = ()
    gauges: tuple[tuple[str, float], ...] = ()
    rss_bytes: int = 0
    gpus: tuple[GpuUse, ...] = ()
    skipped_files: tuple[tuple[str, str, bool], ...] = ()


@frozen
class QuerySampled:
    """The state of a running query, published five times a second and at its end.

    The stages hold ``nbytes_held`` bytes and may hold ``memory_bytes``. ``reader_s`` is the time that the query has
    waited for the reader of its rows. ``is_paused`` is True while a person has paused it.
    """

    time_s: float
    stages: tuple[StageSample, ...]
    nbytes_held: int
    memory_bytes: int
    reader_s: float
    measures: Measures = Measures()
    is_paused: bool = False


@frozen
class QueryFinished:
    """The query ended; ``error`` is None if it completed or was closed early by its reader."""

    error: BaseException | None
    time_s: float


Event = QueryStarted | BundleProduced | RowsFailed | StageFinished | QuerySampled | QueryFinished
