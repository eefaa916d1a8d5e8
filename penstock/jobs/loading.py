"""Jobs into what is no folder of files, such as a database: rows are staged by a job, then put there in one go.

Killed while rows are staged, the job goes on from there. Killed while they are put in place, that is done again from
the staged rows: until then the sink shows nothing, or, where it writes by id, what is written again the same. Two notes
tell of it: ``loading`` before rows are put in place, ``loaded`` after. With the first and without the second, the sink
may have been quicker than the note: one that makes something new (mode ``create``) finds it there, one that adds to
what is there (a ``OnceSink``) finds the mark that its commit left.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.engine.runners import query
from penstock.errors import JobChangedError, JobError, OutputExistsError
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetFormat, parquet_sink
from penstock.io.memory import MemorySource
from penstock.io.writer import FileSink
from penstock.jobs.folder import JobFolder, held, job_folder, jobs_home
from penstock.jobs.running import Resume, run_held_job, say
from penstock.plan.nodes import Scan, Write
from penstock.protocols import OnceSink, Sink, Source, Subscriber
from penstock.storage.urls import local_path


def run_loading_job(
    plan: Write,
    runner: query.Runner,
    resume: Resume,
    job_dir: str | os.PathLike[str] | None,
    *,
    subscribers: Sequence[Subscriber] = (),
) -> pa.Table:
    """Stage the rows of a write in ``job_dir``, from where an earlier run left off, and put them into its sink."""
    root = os.fspath(job_dir or default_folder(plan.sink))
    local = local_path(root)
    staged = parquet_sink(root if local is None else os.path.abspath(local), schema=plan.child.schema)
    assert isinstance(staged, FileSink)
    folder = job_folder(staged)
    with held(folder):
        loading = _Loading(plan.sink, folder, staged.root)
        loading.check()
        with _told_of_job_dir():
            files = run_held_job(Write(plan.child, staged), folder, runner, resume, subscribers)
        return loading.load(sorted(files.column("path").to_pylist()), runner)


class _Loading:
    """Puts staged rows into a sink, once. The job is locked."""

    def __init__(self, sink: Sink, folder: JobFolder, root: str) -> None:
        self._sink, self._folder, self._root = sink, folder, root
        self._is_there = False  # by a run that could not say so any more
        self._was_gone = False

    def check(self) -> None:
        """Let the sink refuse what it will, before hours of work."""
        known = self._known()
        begun = self._folder.note("loading") or {}
        if known is not None and not self._is_gone():
            self._forget(begun)
            return
        if known is not None:
            begun = {}
        self._tidy(begun)  # which waits for the end of a transaction that outlives its client
        self._tidy(self._folder.note("trying") or {})
        if self._has_committed(begun):
            self._is_there = True
            return
        self._folder.keep_note("trying", {"run_id": getattr(self._sink, "run_id", None)})
        try:
            self._sink.start()
        except OutputExistsError:
            if not begun or self._mode != "create":
                raise
            self._is_there = True
        else:
            self._sink.abort()

    def load(self, paths: list[str], runner: query.Runner) -> pa.Table:
        """Put the rows of the staged files into the sink, unless they are there."""
        known = self._known()
        if known is not None and known["paths"] == paths:
            say(f"The rows of this job are in {self._name} since {known['time']}.")
            return pa.Table.from_pylist(known["shown"])
        begun = self._folder.note("loading") or {}
        is_done = self._is_there and begun.get("paths") == paths
        if self._mode != "overwrite" and not is_done and (known is not None or self._is_there):
            raise JobError(
                f"The rows of the job in {self._root!r} were put into {self._name} before, and some of them have been "
                "made anew: use mode='overwrite' to replace them all."
            )
        if is_done:
            say(f"The rows of this job were put into {self._name} by the run before, which was killed then.")
            shown = pa.table({})
        else:
            begun = {"paths": paths, "run_id": getattr(self._sink, "run_id", None)}
            self._folder.keep_note("loading", begun)
            sink = self._sink if self._once is None else self._once.marked(begun["run_id"])
            shown = query.write(Write(Scan(_source(paths)), sink), runner)
        rows = json.loads(json.dumps(shown.to_pylist(), default=str))
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self._folder.keep_note("loaded", {"into": self._name, "paths": paths, "time": now, "shown": rows})
        self._forget(begun)
        return shown

    def _known(self) -> dict[str, Any] | None:
        """Return what is known of rows that were put into this sink; what went into another one is of no use."""
        known = self._folder.note("loaded")
        if known is None or self._was_gone:
            return None
        if known.get("into") != self._name:
            raise JobError(
                f"The job in {self._root!r} put its rows into {known.get('into')}, and now they are to go into "
                f"{self._name}: give it a job_dir= of its own."
            )
        return known

    def _is_gone(self) -> bool:
        """Say whether a sink that makes something new finds nothing there, where its rows were put before."""
        if self._mode != "create":
            return False
        try:
            self._sink.start()
        except OutputExistsError:
            return False
        self._sink.abort()
        self._was_gone = True
        say(f"The rows of this job were put into {self._name}, and are not there any more: they are put there again.")
        return True

    @property
    def _once(self) -> OnceSink | None:
        """The sink, if it adds to what is there and can tell later whether it has."""
        return self._sink if self._mode == "append" and isinstance(self._sink, OnceSink) else None

    def _has_committed(self, begun: dict[str, Any]) -> bool:
        """Say whether a run that was killed while it loaded has added its rows to what was there."""
        return self._once is not None and bool(begun.get("run_id")) and self._once.has_committed(begun["run_id"])

    def _forget(self, begun: dict[str, Any]) -> None:
        """Let go of the mark of a run whose rows are noted to be there."""
        if self._once is not None and begun.get("run_id"):
            self._once.forget(begun["run_id"])
            self._folder.keep_note("loading", {})

    def _tidy(self, begun: dict[str, Any]) -> None:
        """Remove what a run that was killed while it loaded has left beside the target, where it has a name for it."""
        if begun.get("run_id") and dataclasses.is_dataclass(self._sink) and hasattr(self._sink, "run_id"):
            earlier: Any = dataclasses.replace(self._sink, run_id=begun["run_id"])
            earlier.abort()

    @property
    def _mode(self) -> str:
        return str(getattr(self._sink, "mode", "overwrite"))

    @property
    def _name(self) -> str:
        return _name(self._sink)


@contextmanager
def _told_of_job_dir() -> Iterator[None]:
    try:
        yield
    except JobChangedError as exc:
        exc.add_note("Jobs into the same target share a folder; job_dir= gives this one a folder of its own.")
        raise


def default_folder(sink: Sink) -> Path:
    """Return where a job into a sink is kept unless the user says otherwise: by the name of the sink."""
    return jobs_home() / hashlib.blake2b(_name(sink).encode(), digest_size=8).hexdigest()


def _name(sink: Sink) -> str:
    return str(getattr(sink, "name", type(sink).__qualname__))


def _source(paths: Sequence[str]) -> Source:
    if not paths:
        return MemorySource.from_table(pa.table({}))
    return FileSource(ParquetFormat(), list(paths))
