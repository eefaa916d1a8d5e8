"""``penstock dashboard``: a page that shows a job and its rows."""

from __future__ import annotations

import contextlib
import sys
import threading
from itertools import islice
from typing import Annotated

import typer

from penstock.cli.app import app


@app.command()
def dashboard(
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT", help="The folder or URL of a job, or a folder with jobs; else all of this machine."
        ),
    ] = None,
    other: Annotated[str | None, typer.Argument(metavar="OTHER", help="The folder of another run to compare.")] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="The port to listen on; 0 is any free one.")
    ] = 0,
) -> None:
    """Show jobs on a local page: progress, errors and rows.

    Without OUT it lists the jobs and running queries of this machine. A job may be finished, or run in another process,
    which the page can pause or stop. Ctrl-C ends the dashboard.

    \b
    penstock dashboard
    penstock dashboard out/
    penstock dashboard out/ other-model/
    """
    from penstock.dashboard.home import HomeBoard
    from penstock.dashboard.job import JobBoard
    from penstock.dashboard.server import DashboardServer
    from penstock.jobs.summary import roots_below

    roots = [root.rstrip("/") for root in (out, other) if root is not None]
    is_folder = len(roots) == 1 and (found := list(islice(roots_below(roots[0]), 2))) and found != roots
    board = HomeBoard(out) if not roots or is_folder else JobBoard(roots)
    server = DashboardServer(board, host, port)
    wait_for_interrupt(f"Dashboard: {server.url}")


def wait_for_interrupt(message: str) -> None:
    """Print a message and wait for Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        print(message, file=sys.stderr)
        threading.Event().wait()
