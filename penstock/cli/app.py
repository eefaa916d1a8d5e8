"""The application ``penstock``: how its commands fail and how they print."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from penstock.errors import InvalidArgumentError, PenstockError
from penstock.events.tracebacks import has_ended_query

SOME_ROWS_FAILED = 3
INTERRUPTED = 130

app = typer.Typer(
    name="penstock",
    help="Run prompts, embeddings, classifiers and SQL over large datasets, and keep every result.",
    epilog="Exit status: 0 success, 1 failure, 2 wrong arguments, 3 success but some rows failed, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

REMEDIES = {
    r"help\(ps\.(\w+)\)": r"python -m pydoc penstock.\1",
    r'set on_error="null"; df\.errors\(\) then lists them': "add --on-error null; penstock errors OUT then lists them",
    r", or ps\.set_provider\('\w+', api_key=\.\.\.\)\. For a server without keys set api_key='none'": (
        ", to none for a server without keys"
    ),
    r"ps\.set_provider\('\w+', base_url=\.\.\.\)": "--base-url",
    r"set use_chat_completions=True": "add --option use_chat_completions=true",
    r"pass model='FOLDER'": "pass --model FOLDER",
    r"use mode='overwrite' to replace it or mode='append'": "use --mode overwrite to replace it or --mode append",
    r'convert it with \.cast\("string"\)': 'write it as a text, such as --text "{NAME}"',
    r", or ask a question with yes or no by ps\.ask": "",
    r" Register your own with ps\.attach_provider\(\.\.\.\)\.": "",
}
"""Parts of errors that name a remedy in Python, and what to say on a command line."""

command_line: list[str] = []  # the arguments of the command that runs; a job remembers them


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    command_line[:] = sys.argv[1:] if argv is None else argv
    try:
        app(command_line, prog_name="penstock")
    except PenstockError as exc:
        is_script = command_line[:1] == ["run"]
        print(f"penstock: {exc if is_script else in_words_of_a_shell(str(exc))}", file=sys.stderr)
        return 2 if isinstance(exc, InvalidArgumentError) else 1
    except OSError as exc:  # such as a folder without permission
        print(f"penstock: {f'{exc.filename!r}: {exc.strerror}' if exc.filename else exc}", file=sys.stderr)
        return 1
    except SystemExit as exc:
        return _status(exc)
    return 0


def in_words_of_a_shell(message: str) -> str:
    """Return an error with the remedies of a command line instead of Python's.

    >>> in_words_of_a_shell("Did you mean 'batch_size'? help(ps.embed_text) lists the options.")
    "Did you mean 'batch_size'? python -m pydoc penstock.embed_text lists the options."
    """
    for pattern, words in REMEDIES.items():
        message = re.sub(pattern, words, message)
    return message


def _status(end: SystemExit) -> int:
    """Return the exit status of a command that has ended itself, or that typer has ended."""
    if isinstance(end.__context__, BrokenPipeError):  # the reader of standard output has seen enough, as in ``| head``
        return 0
    if isinstance(end.code, str):  # of a script
        print(end.code, file=sys.stderr)
        return 1
    if end.code == INTERRUPTED and not has_ended_query(end):
        print("penstock: interrupted", file=sys.stderr)
    return end.code or 0


def print_values(title: str, values: Mapping[str, Any], as_json: bool) -> None:
    """Print named values: as JSON, or as lines with units."""
    if as_json:
        print_json(values)
        return
    print(title)
    for name, value in values.items():
        words, shown = readable(name, value)
        print(f"{words:<16}{shown}")


def print_json(value: Any) -> None:
    import orjson

    print(orjson.dumps(value, default=str).decode())


def readable(name: str, value: Any) -> tuple[str, str]:
    """Format the name and the value of a field.

    >>> readable("nbytes_before", 1_500_000), readable("num_records", 12345), readable("oldest_written_s", None)
    (('size before', '1.5 MB'), ('records', '12,345'), ('oldest written', '-'))
    """
    import time

    words = name.removeprefix("num_").removesuffix("_s").replace("nbytes", "size").replace("_", " ")
    if value is None:
        return words, "-"
    if name.startswith("nbytes"):
        from penstock.observe.printable import format_bytes

        return words, format_bytes(value)
    if name.endswith("_s"):
        return words, time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    return words, f"{value:,}" if isinstance(value, int) else str(value)
