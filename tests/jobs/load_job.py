"""A job into a target other than a folder of files, killed at a moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.io.tables.lance import LanceSink
from penstock.io.tables.sql.sink import SqlSink, SqlWriter
from penstock.jobs.folder import Notes
from penstock.jobs.journal import Journal
from tests.jobs.remote_job import job, part_by_part


@dataclass(frozen=True)
class OwnSink:
    """A user's sink: a file of numbers, which appears at the end."""

    folder: str
    moment: str = ""  # which does not say what rows are written, so it is not part of the job

    @property
    def name(self) -> str:
        return f"numbers in {self.folder}"

    def start(self) -> None:
        os.makedirs(self.folder, exist_ok=True)

    def open(self) -> OwnWriter:
        return OwnWriter(self)

    def commit(self, records: Sequence[dict[str, Any]]) -> None:
        draft = Path(self.folder, "draft")
        draft.write_text("\n".join(str(value) for record in records for value in record["values"]))
        draft.replace(Path(self.folder, "numbers"))

    def abort(self) -> None:
        pass


class OwnWriter:
    def __init__(self, sink: OwnSink) -> None:
        self._sink, self._values = sink, []

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sink.moment == "loading":
            die()
        self._values += batch.column("b").to_pylist()

    def finish(self) -> list[dict[str, Any]]:
        return [{"values": self._values}]

    def close(self) -> None:
        pass


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write(target: str, job_dir: str, calls: str, moment: str = "", **options: Any) -> dict[str, Any]:
    with ps.config(checkpoint_interval=0.001):
        frame = job(calls)
        if target.endswith(".lance"):
            return frame.write_lance(target, resume=True, job_dir=job_dir, **options).to_pydict()
        if target.endswith(".db"):
            return frame.write_sql(
                "numbers", f"sqlite:///{target}", resume=True, job_dir=job_dir, **options
            ).to_pydict()
        return frame.write_sink(OwnSink(target, moment), resume=True, job_dir=job_dir).to_pydict()


def killed_load(target: str, job_dir: str, calls: str, moment: str, mode: str) -> None:
    """Run the job in a process that dies at ``moment``."""
    ps.set_config(progress=False)
    if moment == "staging":
        part_by_part(Journal, calls, after=lambda num_parts: die() if num_parts == 1 else None)
    if moment == "loading":
        SqlWriter.finish = die  # type: ignore[method-assign]
    if moment == "committing":
        SqlSink.commit = LanceSink.commit = die  # type: ignore[method-assign]
    if moment == "loaded":
        write_note = Notes.write
        Notes.write = (  # type: ignore[method-assign]
            lambda self, name, content: die() if name == "loaded" else write_note(self, name, content)
        )
    write(target, job_dir, calls, moment, **({"mode": mode} if mode else {}))
