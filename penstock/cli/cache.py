"""``penstock cache``: show, prune or clear the finished calls that are stored."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import AsJson, app, print_values
from penstock.config import get_config, parse_age, parse_bytes
from penstock.errors import InvalidArgumentError

commands = typer.Typer(no_args_is_help=True)
app.add_typer(commands, name="cache", help="Show, prune or clear the finished calls that are stored.")

Dir = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="A cache_dir, or the output folder of a job. [default: the configured cache_dir]"),
]


@commands.command()
def stats(dir: Dir = None, json: AsJson = False) -> None:
    """Show the number, size and age of the finished calls.

    \b
    penstock cache stats --dir out/ --json
    """
    from penstock.cache.ledger import maintenance

    print_values("Finished calls", dataclasses.asdict(maintenance.stats(_path(dir))), json)


@commands.command()
def prune(
    dir: Dir = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="The most to keep, such as 10GB.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove calls that were not used for this long, such as 30d.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Remove files of old calls, then the least recently used ones.

    \b
    penstock cache prune --older-than 30d --max-size 10GB
    """
    from penstock.cache.ledger import maintenance

    if max_size is None and older_than is None:
        raise InvalidArgumentError("penstock cache prune needs --max-size, --older-than or both")
    max_nbytes = None if max_size is None else parse_bytes(max_size)
    max_age_s = None if older_than is None else parse_age(older_than)
    result = maintenance.prune(_path(dir), time.time(), max_nbytes, max_age_s)
    print_values("Pruned", dataclasses.asdict(result), json)


@commands.command()
def clear(
    dir: Dir = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: AsJson = False,
) -> None:
    """Remove all finished calls."""
    from penstock.cache.ledger import maintenance

    path = _path(dir)
    if not yes:
        count = maintenance.stats(path).num_records
        if not sys.stdin.isatty():
            raise InvalidArgumentError(f"This would remove {count:,} finished calls in {str(path)!r}: add --yes")
        typer.confirm(f"Remove {count:,} finished calls in {path}?", abort=True)
    print_values("Cleared", dataclasses.asdict(maintenance.clear(path)), json)


def _path(dir: str | None) -> Path:
    from penstock.cache.ledger.maintenance import ledger_folder

    if not (folder := dir or get_config().cache_dir):
        raise InvalidArgumentError("No cache is configured: give --dir DIR, or set PENSTOCK_CACHE_DIR")
    return ledger_folder(folder)
