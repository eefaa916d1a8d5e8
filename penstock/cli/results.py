"""The output of a command: a table, written by the extension of its path, or JSON lines to standard output."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import SOME_ROWS_FAILED, command_line, print_json
from penstock.cli.inputs import STREAM
from penstock.errors import InvalidArgumentError, JobError, PenstockError
from penstock.events.tracebacks import note_ended_query
from penstock.observe.printable import format_count, terminal_width, wrapped_text
from penstock.storage.urls import redacted

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame
    from penstock.observe.stats import Stats

WRITERS = {
    **dict.fromkeys(("", ".parquet", ".pq"), "write_parquet"),
    ".csv": "write_csv",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "write_json"),
    ".lance": "write_lance",
}
RETRY = "--retry-errors"  # the option that ``penstock retry`` adds to the command of a job


@dataclass
class TableOutput:
    """The place of the results."""

    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A folder or URL; its extension names the format of the files in it (.parquet, .csv, .jsonl, .lance). "
            "'-' is JSON lines to standard output.",
        ),
    ] = STREAM
    mode: Annotated[
        str,
        typer.Option(metavar="create|append|overwrite", help="If OUT holds data: refuse, add to it, or replace it."),
    ] = "create"
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after a crash, when the same command is run again.")
    ] = False
    budget: Annotated[
        float | None, typer.Option(metavar="DOLLARS", help="Stop before the calls of this run cost more.")
    ] = None
    retry_errors: Annotated[bool, typer.Option(RETRY, hidden=True)] = False

    def write(self, df: DataFrame) -> DataFrame:
        """Write the rows and return the list of files, or the DataFrame itself after a write to standard output."""
        if self.output == STREAM:
            if self.resume or self.budget is not None:
                raise InvalidArgumentError("--resume and --budget need a folder for the results: add -o OUT")
            print_rows(df)
            return df
        from penstock.frame.read.by_extension import suffix_of

        if (suffix := suffix_of(self.output)) not in WRITERS:
            known = ", ".join(name for name in WRITERS if name)
            raise InvalidArgumentError(f"penstock cannot write files of type {suffix!r}; OUT may end with {known}")
        write = getattr(df, WRITERS[suffix])
        resume = "errors" if self.retry_errors else self.resume
        written: DataFrame = write(self.output, mode=self.mode, resume=resume, budget=self.budget)
        return written


def write_and_report(df: DataFrame, result: TableOutput, as_json: bool) -> None:
    """Write the rows of a command and print a summary. A job remembers its command, for ``retry``."""
    from penstock.jobs.summary import note_command
    from penstock.observe.closing_line import query_totals

    argv = [arg for arg in command_line if arg != RETRY]
    is_noted = (result.resume or result.budget is not None) and all(redacted(arg) == arg for arg in argv)
    try:
        with _noting_command(result.output, argv) if is_noted else contextlib.nullcontext():
            written = result.write(df)
    except JobError:  # the job belongs to another command
        is_noted = False
        raise
    except KeyboardInterrupt as exc:
        if (stats := df.stats()).elapsed_s is not None:
            _print_closing_line(stats, result, exc)
            note_ended_query(exc)
        raise
    finally:
        if is_noted:
            with contextlib.suppress(PenstockError):  # the write reports a store that cannot be reached
                note_command(result.output, argv)
    num_failed = written.errors().count_rows()
    if result.output != STREAM:
        num_rows = _num_written(df, written)
        if as_json:
            totals = dataclasses.asdict(query_totals(written.stats()))
            print_json({"output": result.output, **totals, "rows": num_rows, "failed_rows": num_failed})
        elif written.stats().stages:
            _print_closing_line(written.stats(), result)
        else:
            print(f"✓ {format_count(num_rows, 'row')} → {result.output}", file=sys.stderr)
    if num_failed:
        hint = "" if result.output == STREAM else f": penstock errors {result.output}"
        print(f"{format_count(num_failed, 'row')} failed{hint}", file=sys.stderr)
        raise typer.Exit(SOME_ROWS_FAILED)


@contextlib.contextmanager
def _noting_command(output: str, argv: list[str]) -> Iterator[None]:
    """Note the command of a job when its query starts, before its first call: the process may be killed."""
    from penstock.events.events import Event, QueryStarted
    from penstock.jobs.summary import note_command
    from penstock.observe.subscribers import attach_subscriber, detach_subscriber

    class CommandNote:
        def on_event(self, event: Event) -> None:
            if isinstance(event, QueryStarted):
                note_command(output, argv)

    subscriber = CommandNote()
    attach_subscriber(subscriber)
    try:
        yield
    finally:
        detach_subscriber(subscriber)


def _print_closing_line(stats: Stats, result: TableOutput, error: BaseException | None = None) -> None:
    """Print how the query ended, unless its progress has said it."""
    from penstock.observe.closing_line import Destination, closing_line

    if not stats.has_closing_line:
        is_job = result.resume or result.budget is not None
        destination = None if result.output == STREAM else Destination(result.output, is_job)
        line = closing_line(stats, error, stats.elapsed_s or 0.0, destination)
        print("\n".join(wrapped_text(line, terminal_width(sys.stderr))), file=sys.stderr)


def _num_written(df: DataFrame, written: DataFrame) -> int:
    """Return the rows of a write: the rows of its files, or the rows that a table received."""
    if "rows" in written.columns:
        return int(sum(written.to_pydict()["rows"]))
    return written.stats().result_size()[0] if written.stats().stages else df.count_rows()  # a copy has no statistics


def print_rows(df: DataFrame) -> None:
    """Write the rows to standard output as JSON lines, as they come."""
    from penstock.io.formats.json import json_lines

    # Not ahead: the closing line of a query that has ended would come before its last rows.
    rows: Any = df.iter_batches(batch_format="pyarrow", batch_size=None, prefetch=0)
    with contextlib.closing(rows) as batches:  # a Ctrl-C between batches ends the query now
        for batch in batches:
            for part in batch.to_batches():
                sys.stdout.buffer.write(b"".join(json_lines(part)))  # at once: a display below is drawn once
            sys.stdout.buffer.flush()
