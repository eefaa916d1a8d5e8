"""The command ``penstock``. Each module adds some of its subcommands to the application, in the order of ``--help``.

app        the application: how its commands fail and how they print
groups     options that several commands share
inputs     the input of a command: a table, or JSON lines
results    the output of a command: a table, or JSON lines
models     ``prompt``, ``embed``, ``classify`` and ``cost``
query      ``sql`` and ``run``
jobs       ``jobs``, ``errors`` and ``retry``
dashboard, cache, doctor    the commands with these names

It may import everything; nothing imports it.
"""

from penstock.cli import models, query, jobs, dashboard, cache, doctor  # noqa: F401, I001
from penstock.cli.app import main

__all__ = ["main"]
