"""A job in a folder, to which another process may be writing."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from penstock.cache.ledger.maintenance import has_records
from penstock.cache.ledger.open_ledgers import SharedLedger
from penstock.contracts import Origin
from penstock.dashboard.found_rows import RowsRequest
from penstock.dashboard.live import MAX_ERRORS, LiveQuery, error_values
from penstock.dashboard.orders import PROMPTS, RUN, ControlWriter
from penstock.dashboard.prompts import PromptTemplate, read_prompts
from penstock.dashboard.rows import InputRun, MatchCount, ReadFiles, RowFile, rows_page
from penstock.errors import InvalidArgumentError
from penstock.events.events import RowError
from penstock.io.commit.output import JOB_LEDGER
from penstock.io.commit.target import LocalPlace
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.jobs.reconcile import rows_by_file
from penstock.jobs.state import JobState
from penstock.jobs.summary import command_text, open_folder, run_state
from penstock.protocols import Ledger
from penstock.types.row_numbers import RowPlace

MAX_SEARCHES = 4  # of several pages, that are counted at the same time
REREAD_S = 1.0  # the folder is read at most so often
KILLED = (
    "The process of this run was killed, or its machine stopped. The job keeps what is committed: run it again with "
    "resume=True to continue."
)


@dataclass(frozen=True, slots=True)
class JobContent:
    """The content of the folder of a job at one moment."""

    state: str
    order_interval_s: float | None  # None: the page cannot control the run
    run: dict[str, Any]
    files: list[RowFile]
    errors: list[RowError]
    formulas: dict[str, str]  # by column, the expression that computes it
    prompts: dict[str, PromptTemplate]  # by column
    command: str | None


class JobFolderView:
    """Reads the folder of a job, again and again. Thread-safe."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = open_folder(root)
        self.orders = ControlWriter(self._folder.notes)
        self._lock = threading.Lock()
        self._content: JobContent | None = None
        self._read_at_s = 0.0
        if self._folder.notes.read("job") is None:
            raise InvalidArgumentError(
                f"There is no job in {root!r}. A write with --resume, or resume=True in Python, is a job."
            )

    def content(self) -> JobContent:
        """Return the content, at most a second old. This tells a run in another process that a person watches."""
        with self._lock:
            if self._content is None or time.monotonic() - self._read_at_s > REREAD_S:
                self._content, self._read_at_s = self._read(), time.monotonic()
            return self._content

    def open_ledger(self) -> Ledger | None:
        """Return the ledger of the job, None if its files are not here. The caller must close it."""
        place = self._folder.output.place
        folder = place.path(JOB_FOLDER, JOB_LEDGER) if isinstance(place, LocalPlace) else None
        return SharedLedger(folder) if folder is not None and has_records(folder) else None

    def _read(self) -> JobContent:
        folder = self._folder
        state = JobState.of(folder.journal.read())
        found = folder.output.find([file["path"] for file in state.files])
        paths = {
            name: f"{self.root}/{name}"
            if each.staged_nbytes is None
            else f"{self.root}/{folder.output.folder}/data/{name}"
            for name, each in found.items()
        }
        run = folder.notes.read(RUN) or LiveQuery().snapshot()
        errors = [failure.error for failure in state.failures]
        described, at_present = folder.notes.read("job") or {}, run_state(folder)
        prompts = folder.notes.read(PROMPTS) or {"columns": {}}
        interval_s = folder.notes.poll_interval_s if at_present == "running" else None
        if interval_s is not None:
            self.orders.beat(interval_s)
        return JobContent(
            at_present,
            interval_s,
            run,
            row_files(state, paths),
            errors,
            column_formulas(described),
            read_prompts(prompts["columns"]),
            command_text(folder),
        )


class JobBoard:
    """Implements ``Board``: a job, and perhaps another run of it to compare its rows with."""

    def __init__(self, roots: Sequence[str], read: ReadFiles) -> None:
        self._views = [JobFolderView(root.rstrip("/")) for root in roots]
        self._read = read
        self._counting = threading.Lock()
        self._counts: dict[RowsRequest, MatchCount] = {}  # the last searches

    def state(self, query: int | None) -> dict[str, Any]:
        content = self._views[0].content()
        run = content.run
        state, error = shown_state(content.state, run)
        if state == "stopped":
            run = run | {"left_s": None, "stages": [as_stopped(stage) for stage in run["stages"]]}
        run = run | {
            "name": run["name"] or self._views[0].root,
            "state": state,
            "error": error,
            "can_control": content.order_interval_s is not None,
            "order_interval_s": content.order_interval_s,
            "num_failed": len(content.errors),
            "errors": [error_values(error) for error in content.errors[: -MAX_ERRORS - 1 : -1]],
            "num_rows": sum(file.num_rows for file in content.files),
        }
        return {
            "source": content.command or " and ".join(view.root for view in self._views),
            "runs": [view.root for view in self._views],
            "queries": [],
            "query": run,
        }

    def rows(self, asked: dict[str, str]) -> dict[str, Any]:
        content, *others = [view.content() for view in self._views]
        other_files = others[0].files if others else []
        wanted, open_ledger = RowsRequest.of(asked), self._views[0].open_ledger
        if asked.get("count"):
            return self._count(wanted, content.files, other_files)
        page = rows_page(content.files, other_files, self._read, wanted, content.prompts, open_ledger)
        if wanted.is_filtered and not wanted.is_alone:
            page |= self._count(wanted, content.files, other_files, is_new=not wanted.first)
        return page | {"formulas": content.formulas}

    def _count(
        self, wanted: RowsRequest, files: Sequence[RowFile], others: Sequence[RowFile], is_new: bool = False
    ) -> dict[str, Any]:
        """Return the number of rows that match so far. A search that ``is_new`` is counted again."""
        wanted = replace(wanted, first=0)
        with self._counting:
            if is_new or wanted not in self._counts:
                if (last := self._counts.pop(wanted, None)) is not None:
                    last.stop()
                self._counts[wanted] = MatchCount(files, others, self._read, wanted)
                if len(self._counts) > MAX_SEARCHES:
                    self._counts.pop(next(iter(self._counts))).stop()
            count = self._counts[wanted]
        return {"num_found": count.num_found, "is_counted": count.is_complete}

    def control(self, query: int, action: str, stage: int, max_running: int) -> None:
        if self._views[0].content().order_interval_s is None:
            raise InvalidArgumentError("The job does not run, or its folder is not yours to write to.")
        self._views[0].orders.order(action, stage, max_running)


def shown_state(state: str, run: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a job to show, and its error, from the state of its folder and the note of its last run.

    >>> shown_state("unfinished", {"state": "failed", "error": "ValueError: no"}), shown_state("finished", {})
    (('failed', 'ValueError: no'), ('finished', ''))
    """
    if state == "running" and run["state"] in ("pausing", "paused"):
        return run["state"], ""
    if state != "unfinished":
        return state, ""
    if run["state"] in ("failed", "cancelled"):
        return run["state"], run["error"]
    return "stopped", KILLED


def as_stopped(stage: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a stage as they were when its process was killed."""
    if stage["state"] != "running":
        return stage
    return stage | {"state": "stopped", "num_running": 0, "num_rows_queued": 0, "nbytes_queued": 0}


def column_formulas(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the expression of each column that a job computes, from the job's description.

    >>> steps = [{"step": "read"}, {"step": "select", "column 'a'": {"expression": "prompt(col(t)) as a"}}]
    >>> column_formulas({"query": {"steps": [*steps, {"step": "select", "column 'a'": {"expression": "col(a)"}}]}})
    {'a': 'prompt(col(t))'}
    """
    formulas: dict[str, str] = {}
    for step in description.get("query", {}).get("steps", ()):
        for title, column in step.items():
            name = title.removeprefix("column '").removesuffix("'")
            if title.startswith("column '") and column["expression"] != f"col({name})":
                formulas[name] = column["expression"].removesuffix(f" as {name}")
    return formulas


def row_files(state: JobState, paths: dict[str, str]) -> list[RowFile]:
    """Return the existing files of a job, in the order of their names, with their failed rows."""
    failures: dict[int, list[tuple[int, RowError]]] = {}  # by read, with the number of the row there
    for failure in state.failures:
        if failure.origin is not None and failure.origin.start is not None:
            failures.setdefault(failure.origin.source, []).append((failure.origin.start, failure.error))
    for found in failures.values():
        found.sort(key=itemgetter(0))
    files = {
        file["path"]: RowFile(
            paths[file["path"]],
            file["rows"],
            _failed_rows(origins, failures),
            _input_runs(origins, state.first_places),
        )
        for part in state.parts
        for file, origins in rows_by_file(part)
        if file["path"] in paths
    }
    return [files[name] for name in sorted(files)]


def _input_runs(origins: Sequence[Origin], first_places: Mapping[int, RowPlace]) -> list[InputRun]:
    """Return the rows of the input that rows of a file come from, if their reads know where they begin."""
    runs, position = [], 0
    for source, start, num_rows in origins:
        if start is not None and (first := first_places.get(source)) is not None:
            runs.append(InputRun(position, num_rows, RowPlace(first.input, first.number + start)))
        position += num_rows
    return runs


def _failed_rows(origins: Sequence[Origin], failures: Mapping[int, list[tuple[int, RowError]]]) -> dict[int, RowError]:
    """Return the failed rows among those that ``origins`` describe one after another."""
    failed: dict[int, RowError] = {}
    position = 0
    for source, start, num_rows in origins:
        if start is not None and (found := failures.get(source)):
            first, last = (bisect_left(found, row, key=itemgetter(0)) for row in (start, start + num_rows))
            failed.update((position + row - start, error) for row, error in found[first:last])
        position += num_rows
    return failed
