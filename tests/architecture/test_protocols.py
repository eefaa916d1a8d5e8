"""The interfaces of users and of the engine stay narrow, and each one states its contract."""

from __future__ import annotations

import ast

from tests.architecture.imports import ROOT

MAX_METHODS = 4

PROTOCOLS = {
    node.name: node
    for path in ("penstock/protocols.py", "penstock/contracts.py")
    for node in ast.parse((ROOT / path).read_text()).body
    if isinstance(node, ast.ClassDef)
    and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
}


def test_there_are_protocols() -> None:
    assert {"Source", "ReadTask", "Sink", "WorkerPool", "Subscriber"} <= PROTOCOLS.keys()


def test_protocols_are_narrow() -> None:
    methods = {
        name: [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        for name, node in PROTOCOLS.items()
    }
    assert {name: found for name, found in methods.items() if len(found) > MAX_METHODS} == {}


def test_protocols_state_their_contract() -> None:
    """A docstring says who calls, whether a call may block, and who closes."""
    assert [name for name, node in PROTOCOLS.items() if not ast.get_docstring(node)] == []
