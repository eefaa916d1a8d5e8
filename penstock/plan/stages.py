"""Physical plan: stages as frozen, picklable data. A stage has one kind of work, an inbox policy and resources."""

from __future__ import annotations

from dataclasses import field

from penstock.expr.nodes import Expr, UdfCall
from penstock.expr.udf import BatchSpec, Resources, UdfSpec
from penstock.plan.relations import Relation
from penstock.protocols import ReadRequest, Sink, Source
from penstock.types import Schema
from penstock.types.frozen import frozen
from penstock.types.row_numbers import RowInputs

# --- steps on a batch, without user code ---


@frozen
class Select:
    exprs: tuple[Expr, ...]


@frozen
class Where:
    predicate: Expr


@frozen
class ExplodeLists:
    columns: tuple[str, ...]


@frozen
class Melt:
    ids: tuple[str, ...]
    values: tuple[str, ...]
    variable_name: str
    value_name: str


SAMPLED_ROWS = 1024


@frozen
class TakeSample:
    """Take a share of each SAMPLED_ROWS rows. It is the first step of its stage, whose batches have that size."""

    fraction: float
    seed: int | None
    is_with_replacement: bool


@frozen
class NumberRows:
    """Uses the position of the batch, so it must be the first step of its stage."""

    column: str


SIDE = "penstock.side"  # in the metadata of a batch: the number of the input of a relation


@frozen
class MarkSide:
    """Marks each batch as belonging to the input ``side`` of a relation."""

    side: int


Step = Select | Where | ExplodeLists | Melt | TakeSample | NumberRows | MarkSide

# --- work of a stage's workers ---


@frozen
class Read:
    """Read tasks of a source, whose batches must match ``schema``, then ``steps``."""

    source: Source
    request: ReadRequest
    steps: tuple[Step, ...] = ()
    schema: Schema | None = field(default=None, kw_only=True)


@frozen
class Transform:
    steps: tuple[Step, ...]


@frozen
class CallUdf:
    """One UDF call on each batch, then ``steps``. With ``row_inputs``, rows have their numbers in the input."""

    call: UdfCall
    column: str
    keep: tuple[str, ...] | None
    steps: tuple[Step, ...] = ()
    row_inputs: RowInputs | None = field(default=None, kw_only=True)

    @property
    def spec(self) -> UdfSpec:
        return self.call.udf


@frozen
class CallBatch:
    """One ``map_batches`` function on each batch, then ``steps``. ``row_inputs`` as in ``CallUdf``."""

    spec: BatchSpec
    steps: tuple[Step, ...] = ()
    row_inputs: RowInputs | None = field(default=None, kw_only=True)


@frozen
class RunRelation:
    """A relation, with the columns of its inputs if they are known, and the memory that it may use."""

    relation: Relation
    schemas: tuple[Schema | None, ...]
    memory_bytes: int = 0


@frozen
class WriteOut:
    """Rows into a sink. With ``is_in_parts`` each task writes a complete part that can be committed."""

    sink: Sink
    is_in_parts: bool = False


Work = Read | Transform | CallUdf | CallBatch | RunRelation | WriteOut

# --- inbox policies: they cut and join bundles into tasks by row counts ---


@frozen
class Whole:
    """Each bundle is a task."""


@frozen
class Exactly:
    """Tasks of exactly ``num_rows`` rows; the last may be smaller.

    With ``is_cut_later`` a task has several such batches as long as they are quick, and its worker or the reader
    cuts them: a hand-over to a process costs about a millisecond, and to a thread a fifth of a millisecond.
    """

    num_rows: int
    is_cut_later: bool = False


@frozen
class AtMost:
    """Bundles cut to at most ``num_rows``, never joined; to fewer rows if the output would exceed ``nbytes``.

    Up to ``quick_rows`` while the stage finishes them in a moment, by measurement.
    """

    num_rows: int
    nbytes: int | None = None
    quick_rows: int | None = None


@frozen
class Paced:
    """Bundles cut evenly so that a task takes about 0.1 s, by measurement; never joined.

    A row may take a microsecond or a minute. Short tasks spread over workers, show progress and can be cancelled, but
    a million tiny tasks would cost more than the work.
    """


@frozen
class Measured:
    """Tasks of the size with the most rows per second, found by measurement, up to ``max_rows``.

    Bundles are cut and joined. A task is smaller if memory is short, if no more rows come, or if the workers would
    otherwise wait for a slow stage. The search starts with ``first_rows`` if given.
    """

    max_rows: int
    first_rows: int | None = None


@frozen
class Gathered:
    """Bundles joined until they hold ``nbytes`` or no more come; never cut. With ``seconds`` they wait at most this
    long.

    The time grows with the duration of the query; see ``scheduling.gathering_s``.
    """

    nbytes: int
    seconds: float | None = None


@frozen
class Cut:
    """``num_rows`` rows after ``offset``. Once they have come, everything upstream is cancelled."""

    num_rows: int | None
    offset: int


@frozen
class Evenly:
    """All rows, held until the last one comes, in ``num_parts`` tasks of equal size."""

    num_parts: int


Inbox = Whole | Exactly | AtMost | Paced | Measured | Gathered | Cut | Evenly


@frozen
class Stage:
    """A stage of a query. Without ``work``, bundles only pass through the inbox policy.

    ``inputs`` are indices of earlier stages. With ``is_ordered``, outputs leave in the order of the inputs.
    """

    name: str
    work: Work | None
    inputs: tuple[int, ...] = ()
    inbox: Inbox = Whole()
    resources: Resources = field(default_factory=Resources)
    is_ordered: bool = True
