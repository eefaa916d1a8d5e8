"""Begin a job or take it up again, write in parts, commit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

import pyarrow as pa

from penstock.cache.ledger.open_ledgers import job_ledger
from penstock.config import get_config
from penstock.engine.handlers import unpacked_records
from penstock.engine.lineage import Lineage
from penstock.engine.runners import current_runner, query
from penstock.errors import (
    BudgetSpentError,
    ColumnNotFoundError,
    InvalidArgumentError,
    JobChangedError,
    OutputExistsError,
    TypeMismatchError,
    did_you_mean,
)
from penstock.io.commit.dead_letters import error_files
from penstock.io.commit.staging import writing
from penstock.io.writer import FileSink
from penstock.jobs.account import Account, Failure, Part, RowsLeft, read_key
from penstock.jobs.description import Description
from penstock.jobs.folder import JobFolder, held, job_folder
from penstock.jobs.settling import CutFile, Settled, settle
from penstock.observe.errors import SCHEMA, ErrorLog
from penstock.observe.events import RowError
from penstock.plan.nodes import Write
from penstock.plan.stages import Gathered, Read, Stage
from penstock.protocols import Subscriber
from penstock.types.plain import arrow_array

log = logging.getLogger("penstock.jobs")

Resume = bool | Literal["force", "errors"]
WAYS = (True, "force", "errors")

PART_NBYTES = 64 * 2**20  # of data in memory


def checked_resume(resume: Any) -> Resume:
    """Return how a write is to be resumed, False if it is not."""
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume in WAYS):
        near = did_you_mean(str(resume), ["force", "errors"])
        raise InvalidArgumentError(f"resume={resume!r} is not known; use True, 'force' or 'errors'.{near}")
    return cast(Resume, resume)


def write_job(
    plan: Write,
    resume: Resume,
    job_dir: str | os.PathLike[str] | None = None,
    *,
    subscribers: Sequence[Subscriber] = (),
) -> pa.Table:
    """Run a write as a job on the current runner; ``job_dir`` is for sinks that are no folder of files."""
    resume = checked_resume(resume)
    if isinstance(plan.sink, FileSink):
        if job_dir is not None:
            raise InvalidArgumentError("job_dir= is for writes that make no folder of files: those keep the job there.")
        return run_job(plan, current_runner(), resume, subscribers=subscribers)
    from penstock.jobs.loading import run_loading_job

    return run_loading_job(plan, current_runner(), resume, job_dir, subscribers=subscribers)


def run_job(plan: Write, runner: query.Runner, resume: Resume, *, subscribers: Sequence[Subscriber] = ()) -> pa.Table:
    """Run a write to files as a job, from where an earlier run left off, and return the list of its files."""
    assert isinstance(plan.sink, FileSink)
    query.check_calls(plan, has_ledger=True)
    folder = job_folder(plan.sink)
    with held(folder):
        return run_held_job(plan, folder, runner, resume, subscribers)


def run_held_job(
    plan: Write, folder: JobFolder, runner: query.Runner, resume: Resume, subscribers: Sequence[Subscriber]
) -> pa.Table:
    """Do the same in a folder that is locked."""
    sink = plan.sink
    assert isinstance(sink, FileSink)
    job = Job(plan, folder, sink)
    if (files := job.prepare(resume)) is not None:
        return files
    with folder.ledger() as ledger, job_ledger(ledger, job.era), _told_how_to_go_on(sink.root):
        return job.run(runner, subscribers)


class Job:
    """One run of a job, in a folder that is locked."""

    def __init__(self, plan: Write, folder: JobFolder, sink: FileSink) -> None:
        self._folder = folder
        self._output = folder.output()
        self._sink = replace(sink, job=self._output, run_id=self._output.run_id)
        self._plan = replace(plan, sink=self._sink)
        self._account = Account()
        self._settled = Settled()
        self._description = Description(plan.child, sink)

    @property
    def era(self) -> str:
        return self._description.era

    # --- begin, or take up again ---

    def prepare(self, resume: Resume) -> pa.Table | None:
        """Find out what is left to do; return the list of files if that is nothing.

        Without ``resume``, as where there is only a budget, a job that was not finished is taken up all the same; one
        that was is no reason not to write.
        """
        with writing(self._sink.root):
            self._output.check()
            if self._output.is_committing:
                self._output.carry_out()
        known = self._folder.description()
        if known is None:
            self._begin()
            return None
        self._account = Account.of(self._folder.entries())
        differences = self._description.differences(known)
        if not resume and self._output.is_finished:
            self._begin()
            return None
        if differences and resume != "force":
            if self._may_begin_anew(resume):
                self._begin()
                return None
            raise JobChangedError(_refusal(self._sink.root, differences))
        stale, redo = self._description.stale_reads(known, self._account), []
        has_same_reads = self._description.has_same_reads(known)
        if differences or not has_same_reads:
            stale |= self._lost_reads()
        if (self._account.reads or has_same_reads) and not differences and not stale:
            self._description.keep_era(known)
        if resume == "errors":
            redo = [failure for failure in self._account.failures if failure.origin is not None]
            if not self._account.failures:
                say(f"No row of the job in {self._sink.root!r} failed.")
        has_blind_errors = resume == "errors" and len(redo) < len(self._account.failures)
        is_complete = self._output.is_finished and not stale and not redo and not has_blind_errors and self._is_whole()
        if is_complete and not differences:
            return self._nothing_to_do()
        self._settle(stale, redo)
        self._folder.describe(self._description.data)
        return None

    def _begin(self) -> None:
        with writing(self._sink.root):
            found = next(self._output.visible_files(), None) if self._sink.mode == "create" else None
            if found is not None:
                raise OutputExistsError(
                    f"Folder {self._sink.root!r} already holds data, such as {found!r}, that no job with these "
                    "settings made; use mode='overwrite' to replace it or mode='append' to add to it."
                )
            self._account = Account()
            self._folder.clear()
            self._output.begin()
            self._folder.describe(self._description.data)

    def _may_begin_anew(self, resume: Resume) -> bool:
        """Say whether what was begun may be forgotten: nothing was done, or it is done and stays, or is overwritten."""
        if self._output.is_finished:
            return self._sink.mode == "append"
        if not resume and self._sink.mode == "overwrite":
            return True
        return self._account.is_empty and not self._folder.has_answers()

    def _lost_reads(self) -> set[int]:
        """Return the reads that the sources do not give any more, cut into parts as they were."""
        stages = query.stages_in_parts(self._plan, Gathered(PART_NBYTES)) or ()
        reads = [stage.work for stage in stages if isinstance(stage.work, Read)]
        present = {
            read_key(scan, number, task)
            for scan, read in enumerate(reads)
            for number, task in enumerate(read.source.read_tasks(read.request))
        }
        return {number for key, number in self._account.reads.items() if key not in present}

    def _is_whole(self) -> bool:
        return all(self._has(file) for file in self._account.files)

    def _has(self, file: Mapping[str, Any]) -> bool:
        return self._output.has(file["path"], file["nbytes"])

    def _nothing_to_do(self) -> pa.Table:
        files = self._account.files
        say(
            f"The job in {self._sink.root!r} is complete: {self._account.num_rows:,} rows in {len(files):,} files. "
            "Nothing was done."
        )
        return file_table(self._sink.root, files)

    def _settle(self, stale: set[int], redo: Sequence[Failure]) -> None:
        """Make files and journal hold what still counts, and nothing else."""
        with writing(self._sink.root):
            if self._output.is_finished:
                self._output.reopen()
            self._output.begin()
            settled = settle(
                self._account,
                has_file=self._has,
                can_cut=not self._sink.partition_cols,
                stale_reads=stale,
                redo=[failure.origin for failure in redo if failure.origin is not None],
            )
            parts = [Part(tuple(map(self._settled_file, files)), origins) for files, origins in settled.parts]
            old = self._account
            gone = [file["path"] for file in settled.gone if self._output.is_visible(file["path"])]
            kept = [each for each in old.failures if each.origin is not None and settled.is_done(each.origin)]
            self._account = Account(
                reads={key: number for key, number in old.reads.items() if number not in stale},
                ends={number: rows for number, rows in old.ends.items() if number not in stale},
                parts=parts,
                done_lots=settled.done_lots,
                dropped=settled.dropped,
                failures=kept,
                retired=[*old.retired, *gone, *error_files(self._output)],
            )
            self._settled = settled
            self._folder.rewrite(self._account.entry())
            self._account = Account.of([self._account.entry()])
            self._output.keep_only({file["path"] for file in self._account.files})
        if self._account.num_rows:
            say(f"Resuming the job in {self._sink.root!r}: {self._account.num_rows:,} rows of it are written.")

    def _settled_file(self, file: dict[str, Any] | CutFile) -> dict[str, Any]:
        if not isinstance(file, CutFile):
            return file
        return self._sink.cut_file(file.file, [(start, stop) for start, stop in file.keep if stop is not None])

    # --- run ---

    def run(self, runner: query.Runner, subscribers: Sequence[Subscriber]) -> pa.Table:
        errors = next((each for each in subscribers if isinstance(each, ErrorLog)), None) or ErrorLog()
        subscribers = [errors, *(each for each in subscribers if each is not errors)]
        nbytes = min(PART_NBYTES, get_config().memory_bytes // 16)
        stages = query.stages_in_parts(self._plan, Gathered(nbytes, get_config().checkpoint_interval))
        if stages is None:
            self._run_whole(runner, subscribers, errors)
        else:
            self._run_in_parts(stages, runner, subscribers)
        self._folder.confirm()
        return self._commit()

    def _run_in_parts(self, stages: Sequence[Stage], runner: query.Runner, subscribers: Sequence[Subscriber]) -> None:
        left = RowsLeft(self._account, self._settled.done)
        lineage = Lineage(left, stages, self._account.next_lot)
        with closing(query.write_parts(stages, runner, lineage, subscribers=subscribers)) as parts:
            for records, origins in parts:
                lineage.written(origins)
                self._output.sync([record["path"] for record in records])
                self._folder.append(self._account.add(lineage.take_news(), Part(tuple(records), origins)))
        if news := lineage.take_news():
            self._folder.append(self._account.add(news))

    def _run_whole(self, runner: query.Runner, subscribers: Sequence[Subscriber], errors: ErrorLog) -> None:
        """Run a plan in which what a row gives depends on the others: from the start, but for calls that were made."""
        self._account = Account(retired=[*self._account.retired, *self._visible_files()])
        self._output.keep_only(set())
        is_ordered = query.is_written_in_order(self._plan)
        with closing(query.run(self._plan, runner, is_ordered=is_ordered, subscribers=subscribers)) as batches:
            self._account.parts.append(Part(tuple(unpacked_records(batches)), ()))
        texts = (row for batch in errors.batches() for row in batch.to_pylist())
        self._account.failures += [Failure(None, RowError(**text)) for text in texts]
        self._folder.rewrite(self._account.entry())

    def _visible_files(self) -> list[str]:
        return [file["path"] for file in self._account.files if self._output.is_visible(file["path"])]

    def _commit(self) -> pa.Table:
        if self._account.failures:
            self._sink.keep_errors(_errors(self._account.failures))
        self._sink.retired.extend(self._account.retired)
        files = self._sink.completed(self._account.files)
        if files != self._account.files:
            self._note_completed(files)
        if not files:
            say(f"The job in {self._sink.root!r} gave no rows. As its columns are not known, there is no file either.")
        return self._sink.commit(files)

    def _note_completed(self, files: Sequence[dict[str, Any]]) -> None:
        """Have the journal tell of files as they are committed: with other types, or of none at all the empty one."""
        by_path = {file["path"]: file for file in files}
        parts = [
            Part(tuple(by_path.pop(file["path"]) for file in part.files), part.origins) for part in self._account.parts
        ]
        self._account.parts = [*parts, *(Part((file,), ()) for file in by_path.values())]
        self._folder.rewrite(self._account.entry())


def file_table(root: str, files: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the list of files that a write shows."""
    columns = {
        "path": arrow_array([os.path.join(root, file["path"]) for file in files], pa.string()),
        "rows": arrow_array([file["rows"] for file in files], pa.int64()),
        "nbytes": arrow_array([file["nbytes"] for file in files], pa.int64()),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _errors(failures: Sequence[Failure]) -> pa.RecordBatchReader:
    errors = list(dict.fromkeys(failure.error for failure in failures))  # one of a lot is there for each of its parts
    columns = [arrow_array([getattr(error, name) for error in errors], pa.string()) for name in SCHEMA.names]
    return pa.RecordBatchReader.from_batches(SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)])


def _refusal(root: str, differences: Sequence[str]) -> str:
    listed = "".join(f"\n  - {difference}" for difference in differences)
    return (
        f"The job in {root!r} was begun with another query, so it cannot be resumed with this one:{listed}\n"
        "Undo the change; or use resume='force', which keeps what still applies (answers of calls, files made of "
        "inputs that did not change); or mode='overwrite' without resume, which gives the job up; or write to another "
        "folder."
    )


@contextmanager
def _told_how_to_go_on(root: str) -> Iterator[None]:
    try:
        yield
    except (InvalidArgumentError, ColumnNotFoundError, TypeMismatchError):  # which another run meets as well
        raise
    except BaseException as exc:
        if isinstance(exc, BudgetSpentError) and not exc.num_calls:  # too small for anything to be done
            raise
        exc.add_note(f"The job in {root!r} keeps what is done: run it again with resume=True to go on from there.")
        raise


def say(text: str) -> None:
    """Tell the user what became of a job."""
    log.info("%s", text)
    if get_config().progress:
        print(text, file=sys.stderr)  # noqa: T201, the user asked what becomes of the job
