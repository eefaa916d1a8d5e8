"""Run a write as a job: into a folder of files, or into another sink by way of staged files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from penstock.engine.runners import current_runner, query
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.io.writer import FileSink
from penstock.jobs.folder import open_job_folder
from penstock.jobs.job import Resume, run_job
from penstock.jobs.load import run_load_job
from penstock.plan.nodes import Write
from penstock.protocols import Subscriber


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
        return run_load_job(plan, runner, resume, job_dir, subscribers)
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
