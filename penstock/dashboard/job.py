"""A job in a folder, to which another process may be writing."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.cache.ledger.maintenance import has_records
from penstock.cache.ledger.open_ledgers import SharedLedger
from penstock.config import config
from penstock.contracts import Origin
from penstock.dashboard.commands import command_output, start_command
from penstock.dashboard.error_kinds import ErrorKinds
from penstock.dashboard.live import MAX_ERRORS, LiveQuery, Order, error_values, news_of, summary_of
from penstock.dashboard.orders import PROMPTS, RUN, ControlWriter
from penstock.dashboard.reviews import Reviews, row_name
from penstock.dashboard.row_pages.counterparts import Counterparts, Differences, count_unmatched
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.dashboard.row_pages.pages import InputRun, RowFile, RowReader, first_rows, rows_page
from penstock.dashboard.row_pages.prompts import PromptTemplate, read_prompts
from penstock.dashboard.row_pages.row_search import NUMBER, RowSearch, selected
from penstock.errors import InvalidArgumentError
from penstock.events.events import RowError
from penstock.io.commit.output import JOB_LEDGER
from penstock.io.commit.target import LocalPlace
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.jobs.reconcile import rows_by_file
from penstock.jobs.state import JobState
from penstock.jobs.summary import command_text, open_folder, run_state, whole_path
from penstock.protocols import Ledger
from penstock.types.row_numbers import RowPlace

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

MAX_SELECTIONS = 8  # of several pages
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
    error_kinds: list[dict[str, Any]]
    formulas: dict[str, str]  # by column, the expression that computes it
    prompts: dict[str, PromptTemplate]  # by column
    input_paths: list[str]  # files that can be read again as the run has read them
    command: str | None


class JobFolderView:
    """Reads the folder of a job, again and again. Thread-safe."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = open_folder(root)
        self.reviews = Reviews(self._folder.output.place)
        self.orders = ControlWriter(self._folder.notes)
        self._lock = threading.Lock()
        self._content: JobContent | None = None
        self._read_at_s = 0.0
        self._read_mark: tuple[object, ...] | None = None
        if self._folder.notes.read("job") is None:
            raise InvalidArgumentError(
                f"There is no job in {root!r}. A write with --resume, or resume=True in Python, is a job."
            )

    def content(self) -> JobContent:
        """Return the content, at most a second old. This tells a run in another process that a person watches."""
        with self._lock:
            content = self._content
            if content is None or time.monotonic() - self._read_at_s > REREAD_S:
                mark = self._mark()
                if content is None or mark is None or mark != self._read_mark:
                    content = self._content = self._read()
                    self._read_mark = mark
                self._read_at_s = time.monotonic()
            if content.order_interval_s is not None:
                self.orders.beat(content.order_interval_s)
            return content

    def _mark(self) -> tuple[object, ...] | None:
        """Return something that changes with the folder; None if its files are not here."""
        place = self._folder.output.place
        if not isinstance(place, LocalPlace):
            return None
        names = ("", JOB_FOLDER, f"{JOB_FOLDER}/journal", f"{JOB_FOLDER}/{RUN}.json")
        files = [path.stat() for name in names if (path := place.path(name)).exists()]
        return run_state(self._folder), *((file.st_mtime_ns, file.st_size) for file in files)

    @property
    def hidden_folder(self) -> Path | None:
        """The folder with the data of the job; None if it is not on this machine."""
        place = self._folder.output.place
        return place.path(JOB_FOLDER) if isinstance(place, LocalPlace) else None

    @property
    def ledger_folder(self) -> Path | None:
        return None if (hidden := self.hidden_folder) is None else hidden / JOB_LEDGER

    def open_ledger(self) -> Ledger | None:
        """Return the ledger of the job, or None if its files are on another machine. The caller must close it."""
        folder = self.ledger_folder
        return SharedLedger(folder) if folder is not None and has_records(folder) else None

    def _read(self) -> JobContent:
        folder = self._folder
        if (described := folder.notes.read("job")) is None:
            raise InvalidArgumentError(f"The job in {self.root!r} is gone: its folder was deleted or moved.")
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
        at_present = run_state(folder)
        prompts = folder.notes.read(PROMPTS) or {"columns": {}}
        interval_s = folder.notes.poll_interval_s if at_present == "running" else None
        return JobContent(
            at_present,
            interval_s,
            run,
            row_files(state, paths),
            errors,
            ErrorKinds(errors).values(),
            column_formulas(described),
            read_prompts(prompts["columns"]),
            input_files(described),
            command_text(folder),
        )


class JobBoard:
    """Implements ``Board`` and ``ShownRun``: a job, and perhaps another run of it to compare its rows with."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._views = [JobFolderView(root.rstrip("/")) for root in roots]
        self._selecting = threading.Lock()
        self._selections: dict[tuple[RowsRequest, tuple[str, ...]], RowSearch] = {}  # the last ones

    def home(self) -> dict[str, Any]:
        return {"jobs": [self.summary()], "queries": []}

    def shown(self, asked: Mapping[str, Any]) -> JobBoard:
        return self

    def summary(self) -> dict[str, Any]:
        """Return the line of the job in a list of jobs."""
        content = self._views[0].content()
        program = content.run.get("program") or {}
        command = content.command or program.get("command")
        return summary_of(self._run(content)) | {"root": self._views[0].root, "command": command}

    def state(self, asked: Mapping[str, str]) -> dict[str, Any]:
        content = self._views[0].content()
        run = self._run(content) | {
            "can_control": content.order_interval_s is not None,
            "order_interval_s": content.order_interval_s,
        }
        return {
            "source": content.command or " and ".join(view.root for view in self._views),
            "runs": [view.root for view in self._views],
            "compared": [compared_run(view.content()) for view in self._views] if len(self._views) > 1 else [],
            "command": content.command,
            "program": content.run.get("program"),
            "can_try_input": bool(content.input_paths and content.prompts),
            "output": "" if (folder := self._views[0].hidden_folder) is None else command_output(folder),
            "queries": [],
            "query": news_of(run, asked),
        }

    def _run(self, content: JobContent) -> dict[str, Any]:
        """Return the figures of the last run, corrected by the folder.

        While a watched run goes on, its failed rows are listed, even before they are committed. At
        any other time they are the failed rows of the job.
        """
        run, (state, error) = content.run, shown_state(content.state, content.run)
        if state == "stopped":
            stages = [as_stopped(stage, run["elapsed_s"]) for stage in run["stages"]]
            models = [model | {"num_in_flight": 0, "num_waiting": 0} for model in run["models"]]
            run = run | {"left_s": None, "stages": stages, "models": models}
        is_live = content.state == "running" and content.order_interval_s is not None and bool(run["stages"])
        failed = {
            "errors": [error_values(each) for each in content.errors[: -MAX_ERRORS - 1 : -1]],
            "error_kinds": content.error_kinds,
            "num_failed": len(content.errors),
        }
        return run | {
            "name": run["name"] or self._views[0].root,
            "state": state,
            "error": error,
            "is_live": is_live,
            "num_rows": sum(file.num_rows for file in content.files),
            **({} if is_live else failed),
        }

    def rows(self, asked: Mapping[str, str]) -> dict[str, Any]:
        content, *others = [view.content() for view in self._views]
        wanted, other_files = RowsRequest.of(asked), others[0].files if others else []
        reader = RowReader(content.files)
        selection = self._selection(wanted, reader, other_files) if wanted.is_filtered else None
        if asked.get("count") and selection is not None:
            figures = {"num_found": selection.num_found, "num_rows": reader.num_rows}
            if wanted.is_different and selection.is_complete and reader.files and other_files:
                with config(progress=False, dashboard=False):
                    figures |= count_unmatched(reader.all(), [file.path for file in other_files], wanted.key)
            return figures | {"is_counted": selection.is_complete}
        open_ledger = self._views[0].open_ledger
        page = rows_page(reader, other_files, wanted, selection, content.prompts, open_ledger)
        reviews = self._views[0].reviews.read()
        for row in page["rows"]:
            place = None if row["row"] is None else RowPlace(row["source"], row["row"])
            row["review"] = reviews.get(row_name(row["number"], place))
        return page | {"formulas": content.formulas, "can_review": True, "can_try": bool(content.prompts)}

    def table(self, asked: Mapping[str, str], max_rows: int) -> pa.Table:
        content, *others = [view.content() for view in self._views]
        other_files = [file for other in others for file in other.files]
        with config(progress=False, dashboard=False):
            found = _selected(RowReader(content.files), RowsRequest.of(asked), other_files)
            return found.exclude(NUMBER).limit(max_rows).to_arrow()

    def prompts(self, asked: Mapping[str, str]) -> dict[str, Any]:
        from penstock.dashboard.trials import editable_prompts

        content = self._views[0].content()
        return {"prompts": editable_prompts(content.prompts, content.run), "has_input": bool(content.input_paths)}

    def try_prompt(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask an edited prompt about rows of the output, by their numbers, or about the first rows of the input."""
        from penstock.dashboard.trials import MAX_ROWS, Trial, run_trial

        content, folder = self._views[0].content(), self._views[0].ledger_folder
        with config(progress=False, dashboard=False):
            if asked.get("numbers") is None:
                found = first_rows(content.input_paths, MAX_ROWS)
            else:
                found = RowReader(content.files).rows(list(map(int, asked["numbers"])))
        is_ours = folder is not None and os.access(folder.parent, os.W_OK)
        return run_trial(content.prompts, Trial.of(asked), found, folder if is_ours else None)

    def review(self, asked: Mapping[str, Any]) -> str:
        """Keep a person's note, thumb or verdict on a row."""
        number, content = int(asked["number"]), self._views[0].content()
        with config(progress=False, dashboard=False):
            found = RowReader(content.files).rows([number])
        if found is None:
            raise InvalidArgumentError(f"There is no row {number}.")
        keys = {}
        if len(self._views) > 1:
            others = [file.path for file in self._views[1].content().files]
            key = Counterparts(others, str(asked.get("key", "")), found.batch).key
            keys = {key: found.batch.column(key)[0].as_py()}
        other = whole_path(self._views[1].root) if len(self._views) > 1 else ""
        self._views[0].reviews.write(number, found.places[0], keys, {**asked, "other": other})
        return f"Kept in {self._views[0].root}/_reviews."

    def _selection(self, wanted: RowsRequest, reader: RowReader, others: Sequence[RowFile]) -> RowSearch:
        """Return the search for these rows, which may have begun with an earlier page."""
        key = replace(wanted, first=0, is_alone=False), tuple(file.path for file in (*reader.files, *others))
        with self._selecting:
            if (found := self._selections.get(key)) is None or found.error is not None:
                found = RowSearch(_selected(reader, wanted, others))
                self._selections[key] = found
                if len(self._selections) > MAX_SELECTIONS:
                    self._selections.pop(next(iter(self._selections))).stop()
            return found

    def control(self, asked: Mapping[str, Any]) -> str:
        view = self._views[0]
        if asked.get("action") in ("continue", "retry") and view.hidden_folder is not None:
            if view.content().state == "running":
                raise InvalidArgumentError("The job runs already.")
            return start_command(view.root, view.hidden_folder, asked["action"])
        if view.content().order_interval_s is None:
            raise InvalidArgumentError("The job does not run, or its folder is not yours to write to.")
        order = Order.of(asked)
        view.orders.order(order)
        return order.done


def _selected(reader: RowReader, wanted: RowsRequest, others: Sequence[RowFile]) -> DataFrame:
    """Return the rows that a person asks for; see ``row_search.selected``."""
    rows, paths = reader.all(), [file.path for file in others]
    is_compared = wanted.is_different and paths
    differences = Differences(rows.schema.to_arrow(), paths, wanted.key) if is_compared else None
    return selected(rows, reader.failed, wanted, differences)


def compared_run(content: JobContent) -> dict[str, Any]:
    """Return, as JSON values, the prompts of two runs and the cost and latency of a call, to compare them."""
    models, latency = content.run["models"], content.run["history"].get("latency_so_far")
    num_calls, dollars = sum(each["num_calls"] for each in models), [each["dollars"] for each in models]
    systems = {f"system of {name}": prompt.system for name, prompt in content.prompts.items() if prompt.system}
    return {
        "models": [each["model"] for each in models],
        "dollars": sum(dollars) / num_calls if num_calls and None not in dollars else None,
        "latency_s": None if latency is None else latency[0],
        "prompts": content.formulas | systems,
    }


def shown_state(state: str, run: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state that the page shows for a job, and its error. The job's folder and the last run's note tell
    them.

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


def as_stopped(stage: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    """Return the figures of a stage as they were when its process was killed, with its average rate until then."""
    if stage["state"] != "running":
        return stage
    calls = stage.get("calls") and stage["calls"] | {"num_in_flight": 0}
    nothing = {"num_running": 0, "num_rows_queued": 0, "nbytes_queued": 0}
    rate = stage["num_done"] / elapsed_s if elapsed_s else 0.0
    return stage | {"state": "stopped", "calls": calls, "rate": rate, **nothing}


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


def input_files(description: Mapping[str, Any]) -> list[str]:
    """Return the files of a job's one input, if the defaults of a reader read them."""
    match description.get("query", {}).get("inputs"):
        case [{"name": "read_parquet" | "read_json" | "read_csv", "options": options, "versions": versions}]:
            return list(versions) if not options.get("format") else []
    return []


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
    """Return the failed rows by position, if ``origins`` describe all rows one after another."""
    failed: dict[int, RowError] = {}
    position = 0
    for source, start, num_rows in origins:
        if start is not None and (found := failures.get(source)):
            first, last = (bisect_left(found, row, key=itemgetter(0)) for row in (start, start + num_rows))
            failed.update((position + row - start, error) for row, error in found[first:last])
        position += num_rows
    return failed
