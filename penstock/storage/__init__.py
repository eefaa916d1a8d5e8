"""Stores of bytes: local disks, http(s), S3, Google Cloud Storage, Azure, the Hugging Face hub.

stores        find the store of a path; a process has one client for each store
file          ``File``: one file on any store, read on demand
urls, options, secret, mime     paths and URLs, ``storage_options``, hidden credentials, file types
access, limits                  which addresses URLs in the data may reach, and how much they may load
objects, http, fsspec_store     the three kinds of remote store
arrow         stores as Arrow file systems
ranges        a remote file as a Python file
transfer, small_files           many files at once, for ``download`` and ``upload``
durable, processes, backoff, loop    fsync, dead processes, waits, one event loop

The room is in the lowest layer, so that types, functions, readers and writers share its clients.
"""
