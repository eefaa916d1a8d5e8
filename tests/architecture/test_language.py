"""Docstrings, comments, messages and pages are written in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.imports import PACKAGE, ROOT

PAGES = (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
QUESTION = re.compile(r"(what|who|whose|whether|how|which|where|when|why)\b", re.IGNORECASE)
UNCLEAR = re.compile(
    r"\b(whoever|nobody|somebody|anybody|as far as|(is|are) none|(is|are) to be|told|the one who|of late|anew)\b"
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text


def test_docstrings_do_not_open_with_a_question_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in (ROOT / PACKAGE).rglob("*.py")
        for text in docstrings(path)
        if QUESTION.match(text)
    ]
    assert not found, "\n".join(found)


def test_no_sentence_has_an_unclear_subject_or_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*(ROOT / PACKAGE).rglob("*.py"), *PAGES)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if UNCLEAR.search(line)
    ]
    assert not found, "\n".join(found)
