"""Count the code of the package: lines without blanks, comments and docstrings, for each folder and in all.

Run ``python scripts/count_lines.py [FOLDER] [--files]``; ``--files`` lists every file instead of every folder.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Counts:
    """Code lines of one file, and of each function in it."""

    num_lines: int
    function_lengths: tuple[int, ...]


def count(source: str) -> Counts:
    """Count the code lines of a module and of its functions."""
    tree = ast.parse(source)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    } - set(_docstring_lines(tree))
    lengths = [
        sum(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Counts(len(lines), tuple(lengths))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            yield from range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)


def _print_row(name: str, files: list[Counts]) -> None:
    lengths = [length for each in files for length in each.function_lengths]
    print(
        f"{name:<32}{sum(each.num_lines for each in files):>8,}{len(files):>7}"
        f"{statistics.median(each.num_lines for each in files):>13.0f}{statistics.median(lengths or [0]):>17.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent.parent / "penstock")
    parser.add_argument("--files", action="store_true", help="list every file")
    options = parser.parse_args()
    groups: defaultdict[str, list[Counts]] = defaultdict(list)
    for path in sorted(options.folder.rglob("*.py")):
        relative = path.relative_to(options.folder)
        name = str(relative) if options.files else str(relative.parent)
        groups[name].append(count(path.read_text()))
    print(f"{'':<32}{'code':>8}{'files':>7}{'median file':>13}{'median function':>17}")
    for name in sorted(groups):
        _print_row(name, groups[name])
    _print_row("all", [each for files in groups.values() for each in files])


if __name__ == "__main__":
    main()
