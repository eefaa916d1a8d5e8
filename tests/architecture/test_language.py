"""Docstrings, comments, messages and pages are written in plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.imports import PACKAGE, ROOT, package_nodes

PAGES = (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
QUESTION = re.compile(r"(what|who|whose|whether|how|which|where|when|why)\b", re.IGNORECASE)
UNCLEAR = re.compile(
    r"\b(whoever|nobody|somebody|anybody|as far as|(is|are) none|(is|are) to be|told|the one who|of late|anew)\b"
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the docstrings of the package, each with its module."""
    for module, nodes in package_nodes().items():
        for node in nodes:
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield module, text


def test_docstrings_do_not_open_with_a_question_word() -> None:
    found = [f"{module}: {text.splitlines()[0]}" for module, text in docstrings() if QUESTION.match(text)]
    assert not found, "\n".join(found)


def test_no_sentence_has_an_unclear_subject_or_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*(ROOT / PACKAGE).rglob("*.py"), *PAGES)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if UNCLEAR.search(line)
    ]
    assert not found, "\n".join(found)
