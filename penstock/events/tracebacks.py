"""Tracebacks for people: they show the frames of the user's code, not of this package.

A trimmed error collects frames again on its way up. So Penstock trims it again when it is printed: in a script through
``sys.excepthook``, unless the program has its own, and in IPython, which asks the error for its text.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Generator, Iterator
from types import FrameType, MethodType, TracebackType
from typing import Any, TypeVar

from penstock.errors import PenstockError

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # `import penstock` needs no pathlib

log = logging.getLogger("penstock")

IPYTHON_METHOD = "_render_traceback_"  # of an error: returns the lines that IPython prints

Item = TypeVar("Item")


class TrimmedErrors:
    """Trim the tracebacks of expected errors and of Ctrl-C that leave the context. The whole text is logged at DEBUG.

    Other errors, which are bugs, keep all frames.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, frames: TracebackType | None) -> None:
        if not isinstance(error, PenstockError | KeyboardInterrupt):
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", full_traceback(error))
        trim_traceback(error)
        if isinstance(error, KeyboardInterrupt):
            error.__traceback__ = None  # a Ctrl-C may interrupt a query anywhere, even inside a library
            note_ended_query(error)
            setattr(error, IPYTHON_METHOD, MethodType(_ipython_lines, error))


def with_trimmed_errors(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the items, and trim an error of their generator."""
    with TrimmedErrors():
        yield from items


def trim_traceback(error: BaseException) -> None:
    """Drop the frames of this package from an error and its causes."""
    for each in _chain(error):
        each.__traceback__ = own_frames(each.__traceback__)


def own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package; None if no other is left."""
    kept: TracebackType | None = None
    for frame in reversed(list(_walk(frames))):
        if not _is_ours(frame.tb_frame):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))  # for generated code, such as a method of a dataclass
    return frame.f_code.co_filename.startswith(PACKAGE) or module.startswith("penstock.")


def trimmed_text(error: BaseException, others: tuple[str, ...] = ()) -> str:
    """Return the traceback of an error as text, without the frames of this package and of the files ``others``.

    The error itself stays whole.
    """
    found = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = found
    while link is not None:
        link.stack = traceback.StackSummary.from_list(
            [frame for frame in link.stack if not frame.filename.startswith((PACKAGE, *others))]
        )
        link = link.__cause__ or link.__context__
    return "".join(found.format())


def full_traceback(error: BaseException) -> str:
    """Return the whole traceback of an error, including its worker process's."""
    in_worker = getattr(error, "worker_traceback", "")
    return "".join(traceback.format_exception(error)) + (f"\nIn the worker process:\n{in_worker}" if in_worker else "")


def note_ended_query(error: BaseException) -> None:
    """Note that a Ctrl-C has ended a query, which the closing line tells the user."""
    error.__dict__["ended_query"] = True


def has_ended_query(error: BaseException | None) -> bool:
    """Return whether the user has read in a closing line that this error, or its cause, ended the query."""
    return any("ended_query" in each.__dict__ for each in _chain(error))


def _print_trimmed(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    if isinstance(error, PenstockError) or has_ended_query(error):
        trim_traceback(error)
        frames = error.__traceback__
    sys.__excepthook__(kind, error, frames)


def _ipython_lines(error: BaseException) -> list[str]:
    import importlib

    shell: Any = importlib.import_module("IPython").get_ipython()
    trim_traceback(error)
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return lines


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _print_trimmed
setattr(PenstockError, IPYTHON_METHOD, _ipython_lines)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _walk(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next
