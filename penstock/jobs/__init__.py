"""Resumable writes: begun once, resumed after any crash, with each input row in the output exactly once.

write_job    run a write as a job, into files or, by way of staged files, into another sink
job_run      ``Job``: begin or resume, write parts, commit
description  ``Description``: the query, inputs and output of a job, to detect changes
state        ``JobState``: the rows that are in each file, as recorded in the journal; pure
reconcile    the part of a state that is still valid: files lost, inputs changed, rows to retry; pure
row_order    merge rows that were computed again into input order
folder       ``JobFolder``: the hidden folder of a job, on disk or on an object store, with its notes
journal, ledger                  the parts that are done; the answers of calls
summary      jobs below a folder, their states, and the commands that began them

A job records what resuming needs. A viewer keeps notes of its own (``observe/viewers.py``). The room may import
``runners`` and everything below.

Decisions
---------
- A job accounts for rows by counting (``engine/lineage.py``). A bundle carries its *origins*: ranges of rows of a read.
  A stage whose output is not one row for each input row makes a *lot* of each task, and a lot is done once everything
  made of it is written.
- Each written part is one entry of the journal: its files, their origins, the finished lots. A resume drops every part
  that rests on a changed input, a missing file or an unfinished lot.
- Why no hidden row-number column: it would not survive ``map_batches``, and it could not tell a filtered row from one
  in progress.
- Plans that are not row-wise (a limit, a union) run again as a whole; the ledger has the answers of their calls.
- A job into a table is loaded in one transaction, which also leaves a mark that proves that the rows are there.
"""
