"""Writes that survive: begun once, resumed after any crash, each input row in the output exactly once.

running    run_job: begin or resume, write in parts, commit
description  Description: what the job is, and how it differs from the run before
captured   values that functions hold on to, compared within one process
account    Account: which rows are in which files, as the journal has it; pure
settling   what of an account still holds: files lost, inputs changed, rows to be tried again; pure
journal    lines with checksums, as JSON
folder     JobFolder: where a job is kept on disk: its lock, journal, staged files and ledger
remote_folder, remote_lock, remote_ledger    the same on an object store
loading    sinks that are no folder of files: rows are staged by a job, then put there in one go
"""
