"""Read and write files and tables. A ``Source`` hands out tasks, a ``Sink`` stages output and commits it once.

files, hive, settled        find the files of a path; partition folders; files that a commit is replacing
file_source, file_format    scan files of any format
selection, conform, batches    projection, filter and limit; the promised schema; sizes of batches
writer, staged_file         write files below a folder
memory                      rows in memory
formats/                    one module for each file format
tables/                     stores with a library of their own: SQL, Lance, Delta Lake, Iceberg, Hugging Face ...
commit/                     make all files of a write visible at once

The interfaces are in ``protocols.py``. May import ``expr``, ``media``, ``storage``, ``types``; not ``plan`` nodes.
"""
