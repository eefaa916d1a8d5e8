"""``penstock sql`` and ``run``: a query in SQL, and a script."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from penstock.cli.app import AsJson, app
from penstock.cli.dashboard import wait_for_interrupt
from penstock.cli.groups import with_groups
from penstock.cli.inputs import read_table
from penstock.cli.results import TableOutput, write_and_report
from penstock.events.tracebacks import trimmed_text


@app.command()
@with_groups
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT statement.")],
    tables: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]INPUT", help="The tables; without NAME= a table has the name of its file."),
    ],
    result: TableOutput,
    json: AsJson = False,
) -> None:
    """Run a query in SQL over files.

    It may call prompt, embed_text and classify_text.

    \b
    penstock sql "select rating, count(*) as n from reviews group by rating order by rating" reviews.parquet
    penstock sql "select r.*, p.price from r join p using (id)" r=reviews.parquet p=products.csv -o joined/
    """
    import penstock as ps

    frames: dict[str, Any] = {}
    for given in tables:
        name, sign, path = given.partition("=")
        frames[name if sign else PurePosixPath(given).name.partition(".")[0]] = read_table(path if sign else given)
    write_and_report(ps.sql(query, **frames), result, json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", exists=True, dir_okay=False, help="A Python script.")],
    runner: Annotated[str | None, typer.Option(metavar="local|ray", help="Where queries run.")] = None,
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE", help="Such as 4GB.")] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Show the queries on a local page.")] = False,
) -> None:
    """Run a Python script with settings for Penstock.

    More arguments go to the script.

    \b
    penstock run pipeline.py --runner ray --since 2026-01-01
    penstock run pipeline.py --dashboard
    """
    import penstock as ps

    ps.set_config(runner=runner, memory_limit=memory_limit, dashboard=dashboard or None)  # type: ignore[arg-type]
    sys.argv = [str(script), *context.args]
    sys.path[0] = str(script.parent.absolute())
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as exc:
        print(trimmed_text(exc, ("<frozen runpy>", "<string>")), end="", file=sys.stderr)
        raise typer.Exit(1) from None
    if dashboard and sys.stderr.isatty():
        wait_for_interrupt("The script has ended. The dashboard stays open until Ctrl-C.")
