"""Run a write as a job: into a folder of files, or into another sink by way of staged files.

For a sink that is not a folder of files, such as a database, a job stages the rows, then they are loaded. If the run is
killed while rows are staged, the job continues from there. If the job is killed while it loads rows, it loads them
again from the staged files. Until the commit the sink shows nothing, or the same rows if it writes by id. Two notes
record this: ``loading`` before the rows are loaded, ``loaded`` after. If only the first exists, the commit may have
happened. A sink that creates something new (mode ``create``) finds it; a sink that adds to existing data (a
``OnceSink``) finds the mark that its commit left.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from penstock.errors import InvalidArgumentError, JobChangedError, JobError, OutputExistsError, did_you_mean
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetEncoding, ParquetFormat
from penstock.io.memory_source import MemorySource
from penstock.io.writer import FileSink, file_sink
from penstock.jobs.folder import Note, Notes, open_job_folder
from penstock.jobs.job_run import Resume, run_job, say
from penstock.jobs.ledger import jobs_home
from penstock.plan.nodes import Scan, Write
from penstock.protocols import ModeSink, NamedSink, OnceSink, RunSink, Sink, Source, Subscriber
from penstock.runners import current_runner, query
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import local_path


def write_job(
    plan: Write,
    resume: Resume,
    job_dir: str | os.PathLike[str] | None = None,
    *,
    subscribers: Sequence[Subscriber] = (),
) -> pa.Table:
    """Run a write as a job on the current runner; ``job_dir`` is for sinks that are not folders of files."""
    resume, runner = checked_resume(resume), current_runner()
    if not isinstance(plan.sink, FileSink):
        return _staged_and_loaded(plan, runner, resume, job_dir, subscribers)
    if job_dir is not None:
        raise InvalidArgumentError("job_dir= is for sinks that are not folders of files; a folder holds its own job.")
    query.check_calls(plan, has_ledger=True)
    folder = open_job_folder(plan.sink.root, plan.sink.storage_options)
    with folder.held():
        return run_job(plan, folder, runner, resume, subscribers)


def checked_resume(resume: Any) -> Resume:
    """Return the user's ``resume``; False means a write that is not a job."""
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume in ("force", "errors")):
        near = did_you_mean(str(resume), ["force", "errors"])
        raise InvalidArgumentError(f"resume={resume!r} is unknown; use True, 'force' or 'errors'.{near}")
    return cast(Resume, resume)


def _staged_and_loaded(
    plan: Write,
    runner: query.Runner,
    resume: Resume,
    job_dir: str | os.PathLike[str] | None,
    subscribers: Sequence[Subscriber],
) -> pa.Table:
    """Stage the rows of a write in ``job_dir``, from where an earlier run stopped, and load them into its sink."""
    given = os.fspath(job_dir or default_folder(plan.sink))
    local = local_path(given)
    root = given if local is None else os.path.abspath(local)
    folder = open_job_folder(root, StorageOptions())
    with folder.held():
        load = _Load(plan.sink, folder.notes, root)
        load.check()
        staged = Write(plan.child, file_sink(root, ParquetEncoding(), schema=plan.child.schema))
        try:
            files = run_job(staged, folder, runner, resume, subscribers)
        except JobChangedError as exc:
            exc.add_note("Jobs into the same target share a folder; job_dir= gives this job its own folder.")
            raise
        return load.run(sorted(files.column("path").to_pylist()), runner)


class _Load:
    """Loads staged rows into a sink, once. The lock of the job is held."""

    def __init__(self, sink: Sink, notes: Notes, root: str) -> None:
        self._sink, self._notes, self._root = sink, notes, root
        self._name = _name(sink)
        self._mode = sink.mode if isinstance(sink, ModeSink) else "overwrite"
        self._run_id = sink.run_id if isinstance(sink, RunSink) else None
        self._once = sink if self._mode == "append" and isinstance(sink, OnceSink) else None
        self._is_loaded = False  # a killed run loaded the rows, but could not note it
        self._was_removed = False  # the loaded rows, by the user

    def check(self) -> None:
        """Let the sink refuse the write before hours of work."""
        known = self._loaded_note()
        begun = self._notes.read("loading") or {}
        if known is not None and not self._is_removed():
            self._forget(begun)
            return
        if known is not None:
            begun = {}
        self._discard(begun)  # it waits for a transaction that outlives its client
        self._discard(self._notes.read("trying") or {})
        if self._has_committed(begun):
            self._is_loaded = True
            return
        self._notes.write("trying", {"run_id": self._run_id})
        try:
            self._sink.start()
        except OutputExistsError:
            if not begun or self._mode != "create":
                raise
            self._is_loaded = True
        else:
            self._sink.abort()

    def run(self, paths: list[str], runner: query.Runner) -> pa.Table:
        """Load the rows of the staged files into the sink, unless it has them."""
        known = self._loaded_note()
        if known is not None and known["paths"] == paths:
            say(f"The rows of this job were loaded into {self._name} at {known['time']}.")
            return pa.Table.from_pylist(known["shown"])
        begun = self._notes.read("loading") or {}
        is_done = self._is_loaded and begun.get("paths") == paths
        if self._mode != "overwrite" and not is_done and (known is not None or self._is_loaded):
            raise JobError(
                f"The rows of the job in {self._root!r} were loaded into {self._name} before, and some of them have "
                "changed: use mode='overwrite' to replace them all."
            )
        if is_done:
            say(f"The previous run loaded the rows of this job into {self._name} and was killed then.")
            shown = pa.table({})
        else:
            begun = {"paths": paths, "run_id": self._run_id}
            self._notes.write("loading", begun)
            sink = self._sink if self._once is None else self._once.marked(begun["run_id"])
            shown = query.write_and_commit(Write(Scan(_source(paths)), sink), runner)
        rows = json.loads(json.dumps(shown.to_pylist(), default=str))
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self._notes.write("loaded", {"into": self._name, "paths": paths, "time": now, "shown": rows})
        self._forget(begun)
        return shown

    def _loaded_note(self) -> Note | None:
        """Return the note of rows that were loaded into this sink."""
        known = self._notes.read("loaded")
        if known is None or self._was_removed:
            return None
        if known.get("into") != self._name:
            raise JobError(
                f"The job in {self._root!r} loaded its rows into {known.get('into')}, not into {self._name}: give this "
                "write its own job_dir=."
            )
        return known

    def _is_removed(self) -> bool:
        """Return whether the output that a sink created has been removed since its rows were loaded."""
        if self._mode != "create":
            return False
        try:
            self._sink.start()
        except OutputExistsError:
            return False
        self._sink.abort()
        self._was_removed = True
        say(f"The rows of this job were loaded into {self._name} and are gone; Penstock loads them again.")
        return True

    def _has_committed(self, begun: Mapping[str, Any]) -> bool:
        """Return whether a run that was killed while it loaded has added its rows."""
        return self._once is not None and bool(begun.get("run_id")) and self._once.has_committed(begun["run_id"])

    def _forget(self, begun: Mapping[str, Any]) -> None:
        """Remove the mark of a run whose rows are noted as loaded."""
        if self._once is not None and begun.get("run_id"):
            self._once.forget(begun["run_id"])
            self._notes.write("loading", {})

    def _discard(self, begun: Mapping[str, Any]) -> None:
        """Remove the rows that a killed run left staged in the target."""
        if begun.get("run_id") and isinstance(self._sink, RunSink):
            self._sink.discard(begun["run_id"])


def default_folder(sink: Sink) -> Path:
    """Return the folder of a job into a sink without ``job_dir``, by the name of the sink."""
    return jobs_home() / hashlib.blake2b(_name(sink).encode(), digest_size=8).hexdigest()


def _name(sink: Sink) -> str:
    return sink.name if isinstance(sink, NamedSink) else type(sink).__qualname__


def _source(paths: Sequence[str]) -> Source:
    if not paths:
        return MemorySource.from_table(pa.table({}))
    return FileSource(ParquetFormat(), list(paths))
