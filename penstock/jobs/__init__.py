"""Resumable writes: begun once, resumed after any crash, with each input row in the output exactly once.

write        write_job: run a write as a job, into files or, by way of staged files, into another sink
job          Job: begin or resume, write parts, commit
description  Description: the query, inputs and output of a job, to detect changes
state        JobState: the rows that are in each file, as recorded in the journal; pure
reconcile    the part of a state that is still valid: files lost, inputs changed, rows to retry; pure
row_order    merge rows that were computed again into input order
folder       JobFolder: the hidden folder of a job, on disk or on an object store, with its notes
journal, ledger                  its other parts, for both kinds of store
summary      the state of a job, for the command line and the dashboard

A job records what resuming needs. Whoever watches it keeps notes of their own (``observe/viewers.py``).
"""
