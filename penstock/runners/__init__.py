"""Run queries on the current runner. The runner is a setting, chosen by environment or in a ``with`` block.

query         one query from plan to rows, or to the commit of a write, on any runner
reading       how a reader takes the rows of a query
prefetch      a query that runs ahead of its reader; async_reader: one whose reader is an event loop
local         this machine: threads, an event loop, processes
placement     how many workers a stage gets, and which devices; pure
openers       open the handler of a stage in a worker
measuring     figures that belong to no stage: models, memory, GPUs
ray/          a Ray cluster

The engine is loaded with the first query, which keeps ``import penstock`` quick. May import everything up to ``ai``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import get_config, set_config
from penstock.runners.reading import ALL_ROWS, Reading

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import pyarrow as pa

    from penstock.engine.cancellation import Cancellation
    from penstock.plan.nodes import Plan, Write
    from penstock.protocols import Subscriber
    from penstock.runners.query import Runner

_ray_address: str | None = None


def read_rows(
    plan: Plan,
    reading: Reading = ALL_ROWS,
    *,
    subscribers: Sequence[Subscriber] = (),
    cancellation: Cancellation | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the plan's rows from the current runner.

    Closing the iterator cancels the query and returns once everything is released.
    """
    from penstock.runners import query

    return query.rows_for_reader(plan, current_runner(), reading, subscribers, cancellation)


def write(plan: Write, *, subscribers: Sequence[Subscriber] = ()) -> pa.Table:
    """Run a write to its commit on the current runner; see ``query.write_and_commit``."""
    from penstock.runners import query

    return query.write_and_commit(plan, current_runner(), subscribers=subscribers)


def current_runner() -> Runner:
    """Return the runner that the settings name."""
    if get_config().runner == "ray":
        from penstock.runners.ray.runner import RayRunner

        return RayRunner(_ray_address)
    from penstock.runners.local import LocalRunner

    return LocalRunner()


def set_runner_ray(address: str | None = None) -> None:
    """Run queries on Ray: on the cluster at ``address``, the one this process is connected to, or a new local one."""
    global _ray_address
    _ray_address = address
    set_config(runner="ray")


def set_runner_local() -> None:
    """Run queries on this machine."""
    set_config(runner="local")
