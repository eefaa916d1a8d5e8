"""Tables that have a library of their own.

sql/            PostgreSQL through ADBC, all others through SQLAlchemy
lance, deltalake, iceberg    tables of files: tasks read fragments or data files
huggingface     datasets of the hub
ray_dataset     datasets on Ray
turbopuffer     vectors over HTTP; write only
libraries       parts of these tables as tasks; the errors of their libraries

A library is imported only in its own module, when it is used. The room may import what ``io`` may.
"""
