"""The memory of each node that the running tasks of a query have reserved."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.scheduling import num_admitted


@dataclass(slots=True)
class _Node:
    num_running: int = 0
    reserved: int = 0
    waiting: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)


class NodeMemory:
    """Admits tasks on nodes whose budget has room. The others wait for tasks on their node. Any thread may call.

    ``budget`` returns the bytes that the tasks on a node may hold.
    """

    def __init__(self, budget: Callable[[str], int]) -> None:
        self._budget = budget
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)
        self._lock = threading.Lock()

    def has_room(self, node_id: str, nbytes: int) -> bool:
        with self._lock:
            node = self._nodes[node_id]
            return not node.waiting and self._num_admitted(node_id, [nbytes]) == 1

    def reserve(self, node_id: str, nbytes: int, start: Callable[[], None]) -> bool:
        """Reserve memory for a task and return True, or return False and call ``start`` once it is reserved."""
        with self._lock:
            node = self._nodes[node_id]
            if node.waiting or not self._num_admitted(node_id, [nbytes]):
                node.waiting.append((nbytes, start))
                return False
            self._add(node, nbytes)
            return True

    def release(self, node_id: str, nbytes: int) -> None:
        """Give back the memory of a task, and start the tasks that waited for it."""
        admitted = []
        with self._lock:
            node = self._nodes[node_id]
            node.num_running -= 1
            node.reserved -= nbytes
            for _ in range(self._num_admitted(node_id, [each for each, _ in node.waiting])):
                waiting_nbytes, start = node.waiting.popleft()
                self._add(node, waiting_nbytes)
                admitted.append(start)
        for start in admitted:
            start()

    def _num_admitted(self, node_id: str, waiting: list[int]) -> int:
        node = self._nodes[node_id]
        return num_admitted(waiting, node.num_running, node.reserved, self._budget(node_id)) if waiting else 0

    @staticmethod
    def _add(node: _Node, nbytes: int) -> None:
        node.num_running += 1
        node.reserved += nbytes
