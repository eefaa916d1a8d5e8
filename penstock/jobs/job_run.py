"""One run of a job: begin or resume, write parts, commit."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.cache.ledger.maintenance import count_calls
from penstock.cache.ledger.open_ledgers import job_ledger
from penstock.config import get_config, piece_nbytes
from penstock.contracts import Origin
from penstock.engine.lineage import Lineage
from penstock.errors import (
    BudgetSpentError,
    ColumnNotFoundError,
    InvalidArgumentError,
    JobChangedError,
    JobError,
    OutputExistsError,
    PenstockError,
    TypeMismatchError,
)
from penstock.events.events import RowError
from penstock.events.tracebacks import full_traceback
from penstock.io.commit.output import FoundFile, writing
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.io.writer import FileSink, file_table
from penstock.jobs.description import Description
from penstock.jobs.folder import JobFolder
from penstock.jobs.reconcile import CutFile, Reconciled, reconcile
from penstock.jobs.row_order import in_input_order
from penstock.jobs.state import Failure, JobPart, JobState, UnfinishedRows, read_key
from penstock.observe.failed_rows import SCHEMA, ErrorLog, batch_of
from penstock.observe.printable import format_count
from penstock.observe.viewers import watch_job
from penstock.plan.nodes import Write
from penstock.plan.stages import Gathered, Read, Stage
from penstock.plan.unknown_columns import naming_lines
from penstock.protocols import Subscriber
from penstock.runners import query

log = logging.getLogger("penstock.jobs")

Resume = bool | Literal["force", "errors"]

PART_NBYTES = 64 * 2**20  # maximum data of a part, in memory


def run_job(
    plan: Write, folder: JobFolder, runner: query.Runner, resume: Resume, subscribers: Sequence[Subscriber]
) -> pa.Table:
    """Run a write to files as a job, in a folder whose lock is held, and return the list of its files."""
    sink = plan.sink
    assert isinstance(sink, FileSink)
    job = Job(plan, folder, sink)
    if (files := job.prepare(resume)) is not None:
        return files
    try:
        with (
            folder.ledger.open() as ledger,
            job_ledger(ledger, job.era, asks_again=resume == "errors"),
            _note_on_resume(folder, sink.root),
        ):
            job.say_what_is_done(ledger)
            return job.run(runner, subscribers)
    finally:
        folder.output.abandon()


class Job:
    """One run of a job, in a folder whose lock is held."""

    def __init__(self, plan: Write, folder: JobFolder, sink: FileSink) -> None:
        self._folder = folder
        self._output = folder.output
        self._sink = replace(sink, output=folder.output)
        self._plan = replace(plan, sink=self._sink)
        self._state = JobState()
        self._failed_before: list[RowError] = []  # in earlier runs
        self._reconciled = Reconciled()
        self._description = Description(plan.child, sink)
        self._is_resumed = False

    @property
    def era(self) -> str:
        return self._description.era

    # --- begin or resume ---

    def prepare(self, resume: Resume) -> pa.Table | None:
        """Determine the remaining work; return the list of files if nothing remains.

        Without ``resume``, as for a write with a budget, an unfinished job is resumed, and a finished one begins again.
        """
        with writing(self._sink.root):
            alive = self._output.check()
        known = self._folder.notes.read("job")
        if known is None or (not resume and self._output.is_finished):
            self._sink.refuse_other_writes(alive)
            self._begin()
            return None
        self._state = JobState.of(self._folder.journal.read())
        is_damaged = self._is_journal_damaged()
        if is_damaged and self._sink.mode == "overwrite":
            self._begin()
            return None
        differences = self._description.differences(known)
        if differences and resume != "force":
            if self._may_begin_again(resume):
                self._begin()
                return None
            raise JobChangedError(_refusal(self._sink.root, differences))
        stale = self._stale_reads(known, bool(differences))
        redo = self._failed_origins() if resume == "errors" else []
        has_untracked_errors = resume == "errors" and len(redo) < len(self._state.failures)
        is_unchanged = not (is_damaged or differences or stale or redo or has_untracked_errors)
        if is_unchanged and self._output.is_finished and self._has_all_files():
            return self._nothing_to_do()
        self._resume(stale, redo)
        self._folder.notes.write("job", self._description.data)
        return None

    def _begin(self) -> None:
        with writing(self._sink.root):
            found = next(self._output.files_below(), None) if self._sink.mode == "create" else None
            if found is not None:
                raise OutputExistsError(
                    f"Folder {self._sink.root!r} already holds data, such as {found!r}, that no job with these "
                    "settings made; use mode='overwrite' to replace it or mode='append' to add to it."
                )
            self._state = JobState()
            self._folder.clear()
            self._output.begin()
            self._folder.notes.write("job", self._description.data)

    def _is_journal_damaged(self) -> bool:
        """Return whether the journal has lost entries; raise an error if rows that these recorded are visible."""
        known = {*(file["path"] for file in self._state.files), *self._state.retired}
        damage = self._folder.journal.damage
        if damage is None and set(self._output.finished_files()) - known:
            damage = "its last entries are missing or cannot be read"
        if damage is None:
            return False
        text = f"The journal of the job in {self._sink.root!r} is damaged: {damage}."
        unknown = [name for name in self._output.files_below() if name not in known]
        is_overwritten = self._sink.mode == "overwrite"
        if unknown and not is_overwritten:
            raise JobError(
                f"{text} It does not name all files there, such as {unknown[0]!r}, so their rows might be written "
                "twice. Restore the journal from a backup; or write all rows again with mode='overwrite', which "
                "replaces every file there. Answers of calls are kept."
            )
        rows = "All rows" if is_overwritten else "The rows that it does not name"
        log.warning("%s %s are written again; answers of calls are kept.", text, rows)
        return True

    def _may_begin_again(self, resume: Resume) -> bool:
        """Return whether a changed job may begin again: its output stays, is overwritten, or does not exist yet."""
        if self._output.is_finished:
            return self._sink.mode == "append"
        if not resume and self._sink.mode == "overwrite":
            return True
        return self._state.is_empty and not self._folder.ledger.has_answers()

    def _stale_reads(self, known: Mapping[str, Any], is_changed: bool) -> set[int]:
        """Return the reads whose rows are no longer valid; if all are valid, keep the era of the job."""
        stale = self._description.stale_reads(known, self._state) if is_changed else set()
        has_same_reads = self._description.has_same_reads(known)
        if is_changed or not has_same_reads:
            stale |= self._missing_reads()
        if (self._state.reads or has_same_reads) and not is_changed and not stale:
            self._description.keep_era(known)
        return stale

    def _missing_reads(self) -> set[int]:
        """Return the reads that are no longer among the tasks of the sources."""
        stages = query.stages_in_parts(self._plan, Gathered(PART_NBYTES)) or ()
        reads = [stage.work for stage in stages if isinstance(stage.work, Read)]
        present = {
            read_key(scan, number, task)
            for scan, read in enumerate(reads)
            for number, task in enumerate(read.source.read_tasks(read.request))
        }
        return {number for key, number in self._state.reads.items() if key not in present}

    def _failed_origins(self) -> list[Origin]:
        if not self._state.failures:
            say(f"No row of the job in {self._sink.root!r} failed.")
        return [failure.origin for failure in self._state.failures if failure.origin is not None]

    def _has_all_files(self) -> bool:
        files = self._state.files
        found = self._output.find([file["path"] for file in files])
        return all(_is_whole(file, found) for file in files)

    def _nothing_to_do(self) -> pa.Table:
        files = self._state.files
        say(
            f"The job in {self._sink.root!r} is complete: "
            f"{format_count(self._state.num_rows, 'row')} in {format_count(len(files), 'file')}. "
            f"Nothing was done.{_redo(self._state.errors, 'failed')}"
        )
        return file_table(self._sink.root, files)

    def _resume(self, stale: Collection[int], redo: Sequence[Origin]) -> None:
        """Make the files and the journal hold the valid work of earlier runs, and nothing else."""
        with writing(self._sink.root):
            if self._output.is_finished:
                self._output.reopen()
            self._output.begin()
            old, found = self._state, self._output.find([file["path"] for file in self._state.files])
            whole = {file["path"] for file in old.files if _is_whole(file, found)}
            damaged = self._output.damaged([file for file in old.files if file["path"] in whole])
            for name in damaged:
                log.warning(
                    "The staged file %r of the job in %r has changed since it was written, as on a failing disk: its "
                    "rows are computed again",
                    *(name, self._sink.root),
                )
            whole -= set(damaged)
            valid = self._reconciled = reconcile(
                old,
                has_file=lambda file: file["path"] in whole,
                can_cut=not self._sink.partition_cols,
                stale_reads=stale,
                redo=redo,
            )
            self._state = valid.state(old, stale, self._cut)
            gone = [file["path"] for file in valid.gone if file["path"] in found]
            self._state.retired += [name for name in gone if found[name].visible_nbytes is not None]
            self._state.retired += self._output.error_files()
            self._folder.rewrite_journal(self._state.entry())
            self._state = JobState.of([self._state.entry()])
            self._output.keep_only({file["path"] for file in self._state.files})
        self._failed_before = self._state.errors
        self._is_resumed = True

    def say_what_is_done(self, ledger: Path) -> None:
        """Say how many rows of a resumed job are written, and how many answers its ledger has, if these differ."""
        if not self._is_resumed:
            return
        num_rows, num_calls = self._state.num_rows, count_calls(ledger)
        text = f"Resuming the job in {self._sink.root!r}: {num_rows:,} rows of it are written."
        if num_calls not in (0, num_rows):
            say(f"{text} Its ledger has the answers of {format_count(num_calls, 'call')}, which are not made again.")
        elif num_rows:
            say(text)

    def _cut(self, file: CutFile) -> dict[str, Any]:
        pieces = [(file.file, start, stop) for start, stop in file.keep if stop is not None]
        return self._sink.assembled(f"{self._output.run_id}-cut-{secrets.token_hex(4)}", pieces)

    # --- write parts ---

    def run(self, runner: query.Runner, subscribers: Sequence[Subscriber]) -> pa.Table:
        """Write the remaining rows, and commit."""
        errors = next((each for each in subscribers if isinstance(each, ErrorLog)), None) or ErrorLog()
        watch = watch_job(self._plan.child, self._folder.notes)
        subscribers = [errors, watch, *(each for each in subscribers if each is not errors)]
        nbytes = piece_nbytes(PART_NBYTES)
        stages = query.stages_in_parts(self._plan, Gathered(nbytes, get_config().checkpoint_interval))
        try:
            if stages is None:
                self._write_whole(runner, subscribers, errors)
            else:
                self._write_parts(stages, runner, subscribers, watch.note)
            watch.close()
            self._folder.lock.confirm()
            return self._commit()
        except BaseException as exc:
            watch.close(exc)
            raise

    def _write_parts(
        self,
        stages: Sequence[Stage],
        runner: query.Runner,
        subscribers: Sequence[Subscriber],
        on_part: Callable[[], None],
    ) -> None:
        selection = UnfinishedRows(self._state, self._reconciled.done)
        lineage = Lineage(selection, stages, self._state.next_lot)
        writing = query.write_parts(stages, runner, lineage, subscribers=subscribers)
        with naming_lines(self._plan), closing(writing) as parts:
            for records, origins in parts:
                lineage.written(origins)
                self._output.files.sync([record["path"] for record in records])
                part = JobPart(tuple(records), origins)
                on_part()
                self._folder.journal.append(self._state.add(lineage.take_update(), part))
        if update := lineage.take_update():
            self._folder.journal.append(self._state.add(update))
        if query.is_written_in_order(self._plan) and not self._sink.partition_cols:
            self._put_in_order(selection.positions)

    def _put_in_order(self, positions: Mapping[int, tuple[int, int]]) -> None:
        """Merge recomputed rows with the rows that stayed, so that all are in input order."""
        old = self._state.files
        max_rows = self._sink.rows_per_file or max((file["rows"] for file in old), default=1)
        files = in_input_order(self._state, positions, self._output.run_id, max_rows)
        if all(each.file is not None for each in files):
            return
        with writing(self._sink.root):
            self._state.parts = [
                JobPart((each.file or self._sink.assembled(each.name, each.pieces),), tuple(each.origins))
                for each in files
            ]
            names = {file["path"] for file in self._state.files}
            self._output.files.sync(names)
            self._state.retired += [file["path"] for file in old if file["path"] not in names]
            self._folder.rewrite_journal(self._state.entry())
            self._output.keep_only(names)

    def _write_whole(self, runner: query.Runner, subscribers: Sequence[Subscriber], errors: ErrorLog) -> None:
        """Run a plan whose rows depend on each other: from the start, with the answers of calls from the ledger."""
        found = self._output.find([file["path"] for file in self._state.files])
        visible = [name for name, file in found.items() if file.visible_nbytes is not None]
        self._state, self._failed_before = JobState(retired=[*self._state.retired, *visible]), []
        self._output.keep_only(())
        self._state.parts.append(JobPart(tuple(query.written_records(self._plan, runner, subscribers)), ()))
        rows = (row for batch in errors.batches() for row in batch.to_pylist())
        self._state.failures += [Failure(None, RowError(**row)) for row in rows]
        self._folder.rewrite_journal(self._state.entry())

    # --- commit ---

    def _commit(self) -> pa.Table:
        if self._state.failures:
            self._sink.keep_errors(pa.RecordBatchReader.from_batches(SCHEMA, [batch_of(self._state.errors)]))
        files = self._sink.completed(self._state.files)
        if files != self._state.files:
            self._record_completed(files)
        self._output.deletes.extend(self._state.retired)
        if not files:
            say(f"The job in {self._sink.root!r} has no rows and unknown columns, so it writes no file.")
        committed = self._sink.commit(files)
        if self._failed_before:
            say(f"The job in {self._sink.root!r} is complete.{_redo(self._failed_before, 'failed in earlier runs')}")
        return committed

    def _record_completed(self, files: Sequence[dict[str, Any]]) -> None:
        """Journal the files that the commit will make visible: all with the same types, and an empty file only if there
        are no rows."""
        by_path = {file["path"]: file for file in files}
        self._state.retired += [file["path"] for file in self._state.files if file["path"] not in by_path]
        parts = [
            JobPart(tuple(by_path.pop(file["path"]) for file in part.files if file["path"] in by_path), part.origins)
            for part in self._state.parts
        ]
        self._state.parts = [*parts, *(JobPart((file,), ()) for file in by_path.values())]
        self._folder.rewrite_journal(self._state.entry())


def _redo(errors: Sequence[RowError], failed: str) -> str:
    """Return a sentence about failed rows, if any, and how to run them again."""
    return f' {format_count(len(errors), "row")} {failed}; resume="errors" runs failed rows again.' if errors else ""


def _is_whole(file: Mapping[str, Any], found: Mapping[str, FoundFile]) -> bool:
    """Return whether a file is there and has the size that its record says."""
    return file["path"] in found and found[file["path"]].nbytes == file["nbytes"]


def _refusal(root: str, differences: Sequence[str]) -> str:
    listed = "".join(f"\n  - {difference}" for difference in differences)
    return (
        f"The job in {root!r} was begun with another query, so this query cannot resume it:{listed}\n"
        "Undo the change; or give the function version=, if its results stay the same; or use resume='force', which "
        "keeps what is still valid (answers of calls, files of unchanged inputs); or mode='overwrite' without resume, "
        "which gives up the job; or write to another folder."
    )


@contextmanager
def _note_on_resume(folder: JobFolder, root: str) -> Iterator[None]:
    """Add to errors that the job can be resumed, unless another run would fail in the same way.

    The whole traceback goes to a file, because people see only the frames of their own code.
    """
    try:
        yield
    except (InvalidArgumentError, ColumnNotFoundError, TypeMismatchError):
        raise
    except BaseException as exc:
        if isinstance(exc, BudgetSpentError) and not exc.num_calls:  # a budget too small for any call
            raise
        if isinstance(exc, KeyboardInterrupt) and get_config().progress:
            raise  # the closing line of the query says how to resume
        note = f"The job in {root!r} keeps what is done: run it again with resume=True to continue."
        if isinstance(exc, Exception):
            with suppress(PenstockError):  # the store itself may have failed
                folder.notes.write_text("error.txt", full_traceback(exc))
                note += f" The whole traceback is in {JOB_FOLDER}/error.txt there."
        exc.add_note(note)
        raise


def say(text: str) -> None:
    """Tell the user about the state of a job."""
    log.info("%s", text)
    if get_config().progress:
        print(text, file=sys.stderr)  # noqa: T201, the user asked for progress
