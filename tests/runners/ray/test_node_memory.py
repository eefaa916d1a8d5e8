"""Reservations of memory by node, without Ray."""

from __future__ import annotations

from functools import partial

from penstock.runners.ray.node_memory import NodeMemory


def test_tasks_wait_for_memory_of_their_own_node_in_order() -> None:
    started: list[str] = []
    memory = NodeMemory({"small": 50, "large": 100}.__getitem__)
    tasks = [("a", "small", 40), ("b", "small", 20), ("c", "small", 5), ("d", "large", 60), ("e", "large", 40)]
    for name, node_id, nbytes in tasks:
        if memory.reserve(node_id, nbytes, partial(started.append, name)):
            started.append(name)
    assert started == ["a", "d", "e"]  # c would fit, but b was first
    assert not memory.has_room("small", 5)
    memory.release("large", 60)
    assert memory.has_room("large", 60)
    memory.release("small", 40)
    assert started == ["a", "d", "e", "b", "c"]
    memory.release("small", 20)
    memory.release("small", 5)
    assert memory.has_room("small", 500)  # alone
