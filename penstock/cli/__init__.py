"""The command ``penstock``. Each module adds some of its subcommands to the application, in the order of ``--help``."""

from penstock.cli import models, query, jobs, dashboard, cache, doctor  # noqa: F401, I001
from penstock.cli.app import main

__all__ = ["main"]
