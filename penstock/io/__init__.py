"""Read and write files and tables. A ``Source`` hands out tasks, a ``Sink`` stages output and commits it once.

data_file           one file of a scan: where it is, how to open it, its version
files               find the files of a path
hive                partition folders
consistent_listing  list a folder that a commit is changing
file_format, file_source    scan files of any format
selection           projection, filter and limit of a scan
match_schema        give a batch the promised schema
batch_sizes         sizes of batches and tasks
memory_source       rows in memory
writer, staged_file    write files below a folder
formats/            one module for each file format
tables/             stores with a library of their own: SQL, Lance, Delta Lake, Iceberg, Hugging Face ...
commit/             make all files of a write visible at once

The interfaces are in ``protocols.py``. The room may import ``expr``, ``media``, ``storage``, ``types``; not ``plan``
nodes.

A filter reaches a source twice: whole, as an Arrow expression, and in parts, as plain comparisons (``Condition``).
Databases receive the parts that they answer as Penstock does; the whole filters the rows that they return.
"""
