"""Stores of bytes: local disks, http(s), S3, Google Cloud Storage, Azure, the Hugging Face hub.

stores             find the store of a path; a process has one client for each store
file               ``File``: one file on any store, read on demand
urls, mime         paths and URLs; file types
storage_options    one set of short option names for all object stores
secret             credentials that are never shown or written to disk
access             which addresses URLs in the data may reach
object_stores, http, fsspec_store    the three kinds of remote store
arrow_filesystem   stores as Arrow file systems
remote_file        a remote file as a Python file
transfer           many files at once, for ``download`` and ``upload``
small_files        the small local files of a task
download_limits    how much URLs in the data may load
durable            fsync of files and folders
dead_processes     tell whether the process behind a lock still runs
backoff, event_loop    waits between attempts; one event loop for blocking calls

The room is in the lowest layer, so that types, functions, readers and writers share its clients. It imports ``config``
and ``errors``.

Decisions
---------
- Object stores are read by obstore: it needs the least CPU of the clients that we measured, and one wheel serves three
  clouds. Web servers are read by aiohttp, because Penstock checks each redirect and each address.
- A ``download`` task reads its small local files together, into one Arrow buffer.
- More than 256 files are made durable by one ``syncfs``, on file systems that are known to honour it. Otherwise each
  file gets an ``fsync``.
"""
