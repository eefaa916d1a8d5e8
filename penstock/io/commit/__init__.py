"""Make the files of a write visible all at once, or not at all.

output    ``JobOutput``: staged files, the steps of a commit, recovery of one that was interrupted
target    where files go: a folder on disk, or a prefix of an object store
lease     a lock on an object store, which has none: an object that its holder keeps writing
run_lock  shows other runs that this one is alive
job_lock  one run at a time works on a job

It may import what ``io`` may.

Decisions
---------
- A write stages its files and commits once: by renames on disk, by server-side copies on object stores. A journal
  lets the next write finish an interrupted commit. The folder of a new partition moves as a whole.
- The system writes finished files to disk while the query goes on; the driver waits for them before the commit. Workers
  on other machines, and workers of a job, wait for their own files.
"""
