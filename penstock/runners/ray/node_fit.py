"""Fit the workers of stages on the nodes of a cluster: which nodes can hold them, and what is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from penstock.errors import InvalidArgumentError
from penstock.runners.placement import SLACK, FreeResources, counted, described_amounts

MAX_KINDS = 5  # of nodes in a message


@dataclass(frozen=True, slots=True)
class Node:
    """A node that may get work."""

    node_id: str
    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActorRequest:
    """The actors that a stage asks for: Ray's ``options`` of each, and how many it needs at least."""

    name: str
    options: Mapping[str, Any]
    min_workers: int = 1

    @property
    def demand(self) -> dict[str, float]:
        return demand(self.options)

    def allows(self, node: Node) -> bool:
        """Return whether the labels and the scheduling strategy allow a node, whatever its resources."""
        strategy = self.options.get("scheduling_strategy")
        if isinstance(strategy, NodeAffinitySchedulingStrategy) and not strategy.soft:
            return bool(strategy.node_id == node.node_id)
        return all(matches(node.labels.get(key)) for key, matches, _ in self._label_rules())

    @property
    def is_checked(self) -> bool:
        """False if another rule decides: a placement group has its own reserve, a fallback its own labels."""
        strategy = self.options.get("scheduling_strategy")
        in_group = isinstance(strategy, PlacementGroupSchedulingStrategy) or self.options.get("placement_group")
        return not (in_group or self.options.get("fallback_strategy"))

    @property
    def amounts(self) -> str:
        """The needs of each worker, for a message."""
        strategy = self.options.get("scheduling_strategy")
        parts = described_amounts(self.demand) + [f"the label {text}" for _, _, text in self._label_rules()]
        if isinstance(strategy, NodeAffinitySchedulingStrategy) and not strategy.soft:
            parts.append(f"the node {strategy.node_id}")
        return ", ".join(parts)

    @property
    def labels(self) -> list[str]:
        """The labels of nodes that it depends on."""
        return [key for key, _, _ in self._label_rules()]

    def __str__(self) -> str:
        return f"{counted(self.min_workers, 'worker')} of {self.name} with {self.amounts} each"

    def _label_rules(self) -> Iterator[tuple[str, Callable[[str | None], bool], str]]:
        """Yield the label, the test of its value, and the text of each rule."""
        for key, selector in (self.options.get("label_selector") or {}).items():
            yield key, _selected_by(selector), f"{key}={selector}"
        strategy = self.options.get("scheduling_strategy")
        for rule in (strategy.hard or ()) if isinstance(strategy, NodeLabelSchedulingStrategy) else ():
            yield rule.key, _allowed_by(rule.operator), f"{rule.key} {_operator_text(rule.operator)}"


def check_fit(nodes: Sequence[Node], requests: Sequence[ActorRequest]) -> None:
    """Raise InvalidArgumentError for workers that can never run: alone, or all at once, since all stages run together.

    The largest are placed first, on the smallest nodes that have room.
    """
    requests = [request for request in requests if request.is_checked and request.amounts]
    for request in requests:
        if not any(FreeNode(node).takes(request) for node in nodes):
            raise InvalidArgumentError(
                f"{request.name} needs {request.amounts} for each worker, but no node of the Ray cluster has that. "
                f"The nodes: {described_nodes(nodes, request.labels)}. No autoscaler runs that could "
                "add another, so the query would wait forever."
            )
    free = [FreeNode(node) for node in sorted(nodes, key=lambda node: _size(node.resources))]
    for request in sorted(requests, key=lambda request: _size(request.demand), reverse=True):
        for _ in range(request.min_workers):
            if not any(node.takes(request) for node in free):
                raise InvalidArgumentError(
                    f"This query needs more than the Ray cluster has at once. Its nodes: {described_nodes(nodes)}. It "
                    f"needs {'; '.join(map(str, requests))}. "
                    "Use fewer workers, less for each worker, or a part of a GPU, such as gpus=0.5."
                )


class FreeNode:
    """The resources of a node that no worker has yet."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._free = FreeResources(node.resources)

    def takes(self, request: ActorRequest) -> bool:
        """Take the resources of one worker; return False if they do not fit."""
        return request.allows(self._node) and self._free.take(request.demand) is not None


def demand(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the resources that an actor with these options takes from its node.

    >>> demand({"num_gpus": 0.5, "num_cpus": 0, "scheduling_strategy": "SPREAD"})
    {'GPU': 0.5}
    """
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    amounts = {name: options.get(option) or 0 for name, option in named.items()} | dict(options.get("resources") or {})
    if options.get("accelerator_type"):
        amounts[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return {name: amount for name, amount in amounts.items() if amount}


def num_fitting(nodes: Iterable[Mapping[str, float]], demand: Mapping[str, float]) -> int:
    """Return how many actors with this demand fit on the nodes.

    >>> num_fitting([{"CPU": 8, "GPU": 2}, {"CPU": 4}, {"CPU": 4, "GPU": 1}], {"GPU": 0.5, "CPU": 1})
    6
    """
    return sum(min(int(node.get(name, 0) / amount + SLACK) for name, amount in demand.items()) for node in nodes)


def most_workers(
    nodes: Sequence[Mapping[str, float]], demand: Mapping[str, float], others: Sequence[tuple[Mapping[str, float], int]]
) -> int:
    """Return how many actors a stage may have beside the ``others``, by their demands and numbers.

    >>> most_workers([{"GPU": 4}], {"GPU": 1}, [({"GPU": 0.5}, 1), ({"CPU": 1}, 1)])
    3
    """
    taken = max(
        (sum(other.get(name, 0) * number for other, number in others) / amount for name, amount in demand.items()),
        default=0,
    )
    return num_fitting(nodes, demand) - -int(-taken // 1) if demand else 0


def described_nodes(nodes: Iterable[Node], labels: Sequence[str] = ()) -> str:
    """Return what nodes have, with some of their labels, the most frequent kind first.

    >>> described_nodes([Node("a", {"CPU": 4, "memory": 2**30}), Node("b", {"CPU": 4, "memory": 2**30})])
    '2 with 4 CPUs, no GPU, 1.0 GiB of memory'
    """
    kinds = Counter(_described_node(node, labels) for node in nodes)
    found = [f"{number} with {kind}" for kind, number in kinds.most_common(MAX_KINDS)]
    if len(kinds) > MAX_KINDS:
        found.append(f"{sum(kinds.values()) - sum(number for _, number in kinds.most_common(MAX_KINDS))} others")
    return "; ".join(found) or "none"


def _described_node(node: Node, labels: Sequence[str]) -> str:
    parts = described_amounts(node.resources)
    if not node.resources.get("CPU"):
        parts.insert(0, "no CPU")
    if not node.resources.get("GPU"):
        parts.insert(1, "no GPU")
    parts += [f"{key}={node.labels[key]}" if key in node.labels else f"no label {key}" for key in labels]
    return ", ".join(parts)


def _size(amounts: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(amounts.get(name, 0) for name in ("GPU", "CPU", "memory"))


def _selected_by(selector: str) -> Callable[[str | None], bool]:
    """Return the test of a value of ``label_selector``.

    >>> [[_selected_by(rule)(value) for value in ("a", "b", None)] for rule in ("a", "!a", "in(a, c)", "!in(a, c)")]
    [[True, False, False], [False, True, True], [True, False, False], [False, True, True]]
    """
    wanted = str(selector or "")
    listed = re.fullmatch(r"in\((.*)\)", wanted.removeprefix("!"))
    values = {each.strip() for each in listed[1].split(",")} if listed else {wanted.removeprefix("!")}
    return lambda value: (value in values) != wanted.startswith("!")


def _allowed_by(operator: Any) -> Callable[[str | None], bool]:
    if isinstance(operator, Exists):
        return lambda value: value is not None
    if isinstance(operator, DoesNotExist):
        return lambda value: value is None
    return lambda value: (value in operator.values) == isinstance(operator, In)


def _operator_text(operator: Any) -> str:
    values = f" {', '.join(operator.values)}" if hasattr(operator, "values") else ""
    return f"{type(operator).__name__}{values}"
