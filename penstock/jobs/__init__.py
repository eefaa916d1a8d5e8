"""Resumable writes: begun once, resumed after any crash, with each input row in the output exactly once.

write        write_job: run a write as a job
job          Job: begin or resume, write parts, commit
load         jobs into sinks other than folders of files: rows are staged by a job, then loaded
description  Description: the query, inputs and output of a job, to detect changes
state        JobState: which rows are in which files, as the journal has it; pure
reconcile    the part of a state that is still valid: files lost, inputs changed, rows to retry; pure
folder       JobFolder: the hidden folder of a job, on disk or on an object store:
lock, notes, journal, ledger     its parts, each for both kinds of store
"""
