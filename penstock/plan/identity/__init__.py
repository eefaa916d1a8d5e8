"""Fingerprints: the same in every process, and different if a result may differ.

fingerprint   a plan and its inputs as JSON, kept with a job
differences   the paths at which two fingerprints differ, for the error that refuses to resume
code_keys     functions, classes and objects by content: code, defaults, closure, globals
code_objects  what compiled code refers to
values        plain data as digests, and as short JSON

May import what ``plan`` may.

The identity of a function is its code, defaults, closure and global values when the query starts, and the same for the
user functions that it refers to. ``version=`` replaces all of it. Jobs and ``cache=True`` use the same identity.
"""
