"""The command ``penstock``. One function for each group of subcommands adds it to the parser."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.config import get_config, parse_age, parse_bytes
from penstock.errors import InvalidArgumentError, PenstockError

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 for success, 1 for a failure, 2 for wrong arguments."""
    args = _parser().parse_args(argv)
    command: Command = args.command
    try:
        return command(args)
    except PenstockError as exc:
        print(f"penstock: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, InvalidArgumentError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="Batch inference over large datasets.")
    groups = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_cache(groups)
    return parser


# -- penstock cache --------------------------------------------------------------------------------------------------


def _add_cache(groups: Any) -> None:
    cache = groups.add_parser("cache", help="show, prune or clear the finished calls that are stored")
    commands = cache.add_subparsers(required=True, metavar="stats|prune|clear")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        parser.add_argument(
            "--dir",
            metavar="DIR",
            help="a cache_dir, or the output folder of a job (default: the configured cache_dir)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        parser.set_defaults(command=command)
        return parser

    add("stats", _cache_stats, "Show the number, size and age of the finished calls.")
    prune = add("prune", _cache_prune, "Remove files of old calls, then the least recently used ones.")
    prune.add_argument("--max-size", metavar="SIZE", help="the most to keep, such as 10GB")
    prune.add_argument("--older-than", metavar="AGE", help="remove calls that were not used for this long, such as 30d")
    clear = add("clear", _cache_clear, "Remove all finished calls.")
    clear.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _cache_stats(args: argparse.Namespace) -> int:
    from penstock.cache.ledger.maintenance import stats

    found = stats(_cache_path(args))
    _print("Finished calls", dataclasses.asdict(found), as_json=args.json)
    return 0


def _cache_prune(args: argparse.Namespace) -> int:
    from penstock.cache.ledger.maintenance import prune

    if args.max_size is None and args.older_than is None:
        raise InvalidArgumentError("penstock cache prune needs --max-size, --older-than or both")
    max_nbytes = None if args.max_size is None else parse_bytes(args.max_size)
    max_age_s = None if args.older_than is None else parse_age(args.older_than)
    result = prune(_cache_path(args), time.time(), max_nbytes, max_age_s)
    _print("Pruned", dataclasses.asdict(result), as_json=args.json)
    return 0


def _cache_clear(args: argparse.Namespace) -> int:
    from penstock.cache.ledger.maintenance import clear, stats

    path = _cache_path(args)
    if not args.yes:
        count = stats(path).num_records
        if not sys.stdin.isatty():
            raise InvalidArgumentError(f"This would remove {count:,} finished calls in {str(path)!r}: add --yes")
        if input(f"Remove {count:,} finished calls in {path}? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    _print("Cleared", dataclasses.asdict(clear(path)), as_json=args.json)
    return 0


def _cache_path(args: argparse.Namespace) -> Path:
    from penstock.cache.ledger.maintenance import ledger_folder

    if not (folder := args.dir or get_config().cache_dir):
        raise InvalidArgumentError("No cache is configured: give --dir DIR, or set PENSTOCK_CACHE_DIR")
    return ledger_folder(folder)


# -- printing --------------------------------------------------------------------------------------------------------


def _print(title: str, values: Mapping[str, Any], as_json: bool) -> None:
    """Print named values: as JSON, or as lines with units."""
    if as_json:
        import orjson

        print(orjson.dumps(values).decode())
        return
    print(title)
    for name, value in values.items():
        words, shown = _readable(name, value)
        print(f"{words:<16}{shown}")


def _readable(name: str, value: Any) -> tuple[str, str]:
    """Format the name and the value of a field.

    >>> _readable("nbytes_before", 1_500_000), _readable("num_records", 12345), _readable("oldest_written_s", None)
    (('size before', '1.5 MB'), ('records', '12,345'), ('oldest written', '-'))
    """
    words = name.removeprefix("num_").removesuffix("_s").replace("nbytes", "size").replace("_", " ")
    if value is None:
        return words, "-"
    if name.startswith("nbytes"):
        from rich.filesize import decimal

        return words, decimal(value)
    if name.endswith("_s"):
        return words, time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return words, f"{value:,}" if isinstance(value, int) else str(value)
