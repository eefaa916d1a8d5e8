"""``protocols.py`` keeps its seams narrow, and each one states its contract."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.imports import package_modules

MAX_METHODS = 4

PROTOCOLS = {
    node.name: node
    for node in package_modules()["penstock.protocols"].body
    if isinstance(node, ast.ClassDef)
    and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
}


def test_there_are_protocols() -> None:
    assert {"Source", "ReadTask", "Sink", "WorkerPool", "Subscriber"} <= PROTOCOLS.keys()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocol_is_narrow(name: str) -> None:
    methods = [node.name for node in PROTOCOLS[name].body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(methods) <= MAX_METHODS, f"{name} has {len(methods)} methods: {', '.join(methods)}"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocol_states_its_contract(name: str) -> None:
    assert ast.get_docstring(PROTOCOLS[name]), f"{name} needs a docstring: who calls it, may it block, who closes it"
