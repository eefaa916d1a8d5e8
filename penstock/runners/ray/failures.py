"""Tell kinds of failed calls to Ray actors apart, by the classes of Ray's exceptions."""

from __future__ import annotations

import textwrap

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from penstock.errors import WorkerDiedError

MAX_REASON = 300  # characters of a reason that Ray gives
DEATHS = (RayActorError, WorkerCrashedError, NodeDiedError, LocalRayletDiedError, OutOfMemoryError)


def lost_object(exc: BaseException) -> str | None:
    """Return the id of the object that a call needed and that was lost with its node; None if the call failed for
    another reason.
    """
    cause = exc.cause if isinstance(exc, RayTaskError) else exc
    return cause.object_ref_hex if isinstance(cause, ObjectLostError) else None


def one_line(exc: BaseException) -> str:
    """Return the message of an exception without the table of ids and addresses that Ray puts into it.

    >>> one_line(ValueError("The actor died.\\n\\tpid: 7\\n\\tip: 10.0.0.1\\nIts worker process has died."))
    'The actor died. Its worker process has died.'
    """
    lines = [line for line in str(exc).splitlines() if not line.startswith(("\t", " "))]
    return textwrap.shorten(" ".join(lines) or type(exc).__name__, MAX_REASON, placeholder=" ...")


def is_death(exc: BaseException) -> bool:
    """Return whether the worker of a call is gone."""
    return isinstance(exc, DEATHS) and not isinstance(exc, RayTaskError)


def translated(exc: BaseException, worker: str = "") -> BaseException:
    """Translate an exception of Ray from a call to the actor ``worker``; return other exceptions unchanged."""
    if not isinstance(exc, RayError):
        return exc
    if isinstance(exc, RayTaskError):  # the call did not reach the handler, for example because a module is missing
        cause: BaseException = exc.cause
        cause.add_note(f"In the Ray worker:\n{exc}")
        return cause
    if is_death(exc) and worker:
        what = f"A Ray worker ({worker}) died while it worked on a batch"
    else:
        what = f"A Ray worker failed: {one_line(exc)}"
    error = WorkerDiedError(f"{what}. If it ran out of memory, use a smaller batch_size or fewer workers.")
    error.__cause__ = exc
    return error
