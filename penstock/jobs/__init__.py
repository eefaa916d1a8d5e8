"""Resumable writes: begun once, resumed after any crash, with each input row in the output exactly once.

write        write_job: run a write as a job
job          Job: begin or resume, write parts, commit
load         jobs into sinks other than folders of files: rows are staged by a job, then loaded
description  Description: the query, inputs and output of a job, to detect changes
state        JobState: the rows that are in each file, as recorded in the journal; pure
reconcile    the part of a state that is still valid: files lost, inputs changed, rows to retry; pure
folder       JobFolder: the hidden folder of a job, on disk or on an object store:
lock, notes, journal, ledger     its parts, each for both kinds of store
"""
