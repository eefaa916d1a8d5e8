"""Jobs into what is no folder of files, such as a database: rows are staged by a job, then put there in one go.

Killed while rows are staged, the job goes on from there. Killed while they are put in place, that is done again from
the staged rows: until then the sink shows nothing, or, where it writes by id, what is written again the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.errors import JobError
from penstock.io.file_source import FileSource
from penstock.io.memory import MemorySource
from penstock.io.parquet import ParquetFormat, parquet_sink
from penstock.io.staging import JOB_FOLDER, writing
from penstock.jobs.running import Resume, run_job, say
from penstock.plan.nodes import Scan, Write
from penstock.protocols import Sink, Source, Subscriber
from penstock.runners import query


def run_loading_job(
    plan: Write,
    runner: query.Runner,
    resume: Resume,
    job_dir: str | os.PathLike[str] | None,
    *,
    subscribers: Sequence[Subscriber] = (),
) -> pa.Table:
    """Stage the rows of a write in ``job_dir``, from where an earlier run left off, and put them into its sink."""
    folder = Path(job_dir or default_folder(plan.sink)).absolute()
    loaded, name = folder / JOB_FOLDER / "loaded.json", _name(plan.sink)
    if _loaded(loaded) is None:
        plan.sink.start()  # what the sink refuses is to be known before hours of work
        plan.sink.abort()
    staged = parquet_sink(str(folder), schema=plan.child.schema)
    files = run_job(Write(plan.child, staged), runner, resume, subscribers=subscribers)
    paths = sorted(files.column("path").to_pylist())
    if (known := _loaded(loaded)) is not None:
        if known["paths"] == paths:
            say(f"The rows of this job are in {name} since {known['time']}.")
            return pa.Table.from_pylist(known["shown"])
        if getattr(plan.sink, "mode", "overwrite") != "overwrite":
            raise JobError(
                f"The rows of the job in {str(folder)!r} were put into {name} before, and some of them have been made "
                "anew: use mode='overwrite' to replace them all."
            )
    shown = query.write(Write(Scan(_source(paths)), plan.sink), runner)
    note = {"paths": paths, "time": time.strftime("%Y-%m-%d %H:%M:%S"), "shown": shown.to_pylist()}
    with writing(folder):
        draft = loaded.with_suffix(".draft")
        draft.write_text(json.dumps(note, default=str))
        draft.replace(loaded)
    return shown


def default_folder(sink: Sink) -> Path:
    """Return where a job into a sink is kept unless the user says otherwise: by the name of the sink."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parent = get_config().cache_dir or os.path.join(home, "penstock")
    return Path(parent) / "jobs" / hashlib.blake2b(_name(sink).encode(), digest_size=8).hexdigest()


def _name(sink: Sink) -> str:
    return str(getattr(sink, "name", type(sink).__qualname__))


def _loaded(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _source(paths: Sequence[str]) -> Source:
    if not paths:
        return MemorySource.from_table(pa.table({}))
    return FileSource(ParquetFormat(), list(paths))
