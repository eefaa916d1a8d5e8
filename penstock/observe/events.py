"""Events of a query, as data. The executor publishes; progress, statistics and viewers subscribe."""

from __future__ import annotations

from penstock.types.frozen import frozen


@frozen
class StageInfo:
    """A stage as users see it.

    A stage that writes gives a record for each file. Users count rows, those of the stage ``writes``.
    """

    index: int
    name: str
    writes: int | None = None


@frozen
class QueryStarted:
    stages: tuple[StageInfo, ...]
    time_s: float


@frozen
class BundleProduced:
    """A stage produced one bundle, on which a worker spent ``busy_s``."""

    stage: int
    num_rows: int
    nbytes: int
    busy_s: float


@frozen
class RowError:
    """A failed row, as data. ``input`` holds the arguments of the function as JSON.

    If those are not short text or numbers, it also holds other columns of the row, so that the row can be found.
    ``row`` is its position in the input of the stage; None if several rows failed together.
    """

    operator: str
    input: str
    error_type: str
    message: str
    traceback: str
    row: int | None = None


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


@frozen
class QueryFinished:
    """The query ended; ``error`` is None if it completed or was closed early by its reader."""

    error: BaseException | None
    time_s: float


@frozen
class GpuUse:
    """The use of a GPU while a query ran: the share of time it was busy, its most memory, its mean power."""

    gpu: str
    busy: float
    memory_bytes: int
    total_bytes: int
    power_w: float | None


@frozen
class GpusSampled:
    """The use of the GPUs of this machine, after the end of a query with stages that need them."""

    gpus: tuple[GpuUse, ...]


Event = QueryStarted | BundleProduced | RowsFailed | StageFinished | QueryFinished | GpusSampled
