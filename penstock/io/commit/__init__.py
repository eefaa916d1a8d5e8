"""Make the files of a write visible all at once, or not at all.

output    JobOutput: staged files, the steps of a commit, recovery of one that was interrupted
place     the target as named files: a folder on disk, or a prefix of an object store
lease     a lock on an object store, which has none: an object that its holder keeps writing
run_lock  shows other runs that this one is alive
"""
