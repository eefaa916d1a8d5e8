"""``penstock jobs``, ``errors`` and ``retry``: look at jobs and run their failed rows again."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock.cli.app import AsJson, app, main, print_json
from penstock.cli.results import RETRY, print_rows
from penstock.errors import PathNotFoundError

Out = Annotated[str, typer.Argument(metavar="OUT", help="The folder or URL that the job writes to.")]


@app.command()
def jobs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where to look, with all folders below it.")] = ".",
    json: AsJson = False,
) -> None:
    """List the jobs in a folder, with their state and rows.

    \b
    penstock jobs results/ --json
    """
    from penstock.dashboard.home import HomeBoard

    _check_exists(folder)
    found = HomeBoard(folder).home()["jobs"]
    if json:
        print_json(found)
    elif not found:
        print(f"There are no jobs in {folder}. A write with --resume, or resume=True in Python, is a job.")
    for each in () if json else found:
        failed = f", {each['num_failed']:,} failed" if each["num_failed"] else ""
        print(f"{each['state']:<11} {each['root']}  ({each['num_rows']:,} rows{failed})")
        if each["command"]:
            print(f"{'':<11} {each['command']}")


@app.command()
def errors(
    out: Out,
    limit: Annotated[int, typer.Option(metavar="N", help="The number of rows to show.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON lines.")] = False,
) -> None:
    """Show the rows that failed, with their inputs and errors.

    \b
    penstock errors out/ --limit 5
    penstock errors out/ --json | jq .message
    """
    import penstock as ps

    _check_exists(out)
    try:
        failed = ps.read_parquet(f"{out.rstrip('/')}/_errors")
    except PathNotFoundError:
        print(f"No failed rows are recorded in {out}.", file=sys.stderr)
        return
    if json:
        print_rows(failed)
    else:
        from penstock.events.events import RowError
        from penstock.observe.failure_lines import failure_line

        for row in failed.limit(limit).to_pylist():
            print(failure_line(row["operator"], RowError(**row)))
        if (num_failed := failed.count_rows()) > limit:
            print(f"(showing {limit} of {num_failed:,} failed rows; --json prints all)")


@app.command()
def retry(out: Out) -> None:
    """Run the failed rows of a job again.

    The job must have been begun by this command line. The new results replace the old ones.

    \b
    penstock retry out/
    """
    from penstock.jobs.summary import noted_command

    argv, folder = noted_command(out)
    os.chdir(folder)
    raise typer.Exit(main([*argv, RETRY]))


def _check_exists(folder: str) -> None:
    if "://" not in folder and not os.path.isdir(folder):
        raise PathNotFoundError(f"There is no folder {folder!r}.")
    if "://" not in folder:
        os.scandir(folder).close()  # refuses a folder without permission
