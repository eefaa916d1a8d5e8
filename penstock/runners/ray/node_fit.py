"""Fit the workers of stages on the nodes of a cluster: which nodes can hold them, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.runners.placement import SLACK, FreeResources, counted

MAX_KINDS = 5  # of nodes in a message


STEERING = ("fallback_strategy", "label_selector", "placement_group")  # options by which Ray chooses the node

Resources = Mapping[str, float]
"""The resources of a node, by Ray's names."""


@dataclass(frozen=True, slots=True)
class ActorRequest:
    """The actors that a stage asks for: Ray's ``options`` of each, and how many it needs at least."""

    name: str
    options: Mapping[str, Any]
    min_workers: int = 1

    @property
    def demand(self) -> dict[str, float]:
        return demand(self.options)

    @property
    def is_checked(self) -> bool:
        """False if the user's options choose the nodes, by labels or a scheduling strategy: then only Ray knows."""
        has_strategy = not isinstance(self.options.get("scheduling_strategy", ""), str)
        return not (has_strategy or any(map(self.options.get, STEERING)))

    @property
    def amounts(self) -> str:
        """The needs of each worker, for a message."""
        return ", ".join(described_amounts(self.demand))

    def __str__(self) -> str:
        return f"{counted(self.min_workers, 'worker')} of {self.name} with {self.amounts} each"


def check_fit(nodes: Sequence[Resources], requests: Sequence[ActorRequest]) -> None:
    """Raise InvalidArgumentError for workers that can never run: alone, or all at once, since all stages run together.

    The largest are placed first, on the smallest nodes that have room.
    """
    requests = [request for request in requests if request.is_checked and request.amounts]
    for request in requests:
        if not any(fits(node, request) for node in nodes):
            raise InvalidArgumentError(
                f"{request.name} needs {request.amounts} for each worker, but no node of the Ray cluster has that. "
                f"The nodes: {described_nodes(nodes)}. No autoscaler runs that could "
                "add another, so the query would wait forever."
            )
    free = list(map(FreeResources, sorted(nodes, key=_size)))
    for request in sorted(requests, key=lambda request: _size(request.demand), reverse=True):
        for _ in range(request.min_workers):
            if not any(node.take(request.demand) is not None for node in free):
                raise InvalidArgumentError(
                    f"This query needs more than the Ray cluster has at once. Its nodes: {described_nodes(nodes)}. It "
                    f"needs {'; '.join(map(str, requests))}. "
                    "Use fewer workers, less for each worker, or a part of a GPU, such as gpus=0.5."
                )


def fits(node: Resources, request: ActorRequest) -> bool:
    return FreeResources(node).take(request.demand) is not None


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


def described_nodes(nodes: Iterable[Resources]) -> str:
    """Return what nodes have, the most frequent kind first.

    >>> described_nodes([{"CPU": 4, "memory": 2**30}, {"CPU": 4, "memory": 2**30}])
    '2 with 4 CPUs, no GPU, 1.0 GiB of memory'
    """
    kinds = Counter(map(_described_node, nodes))
    found = [f"{number} with {kind}" for kind, number in kinds.most_common(MAX_KINDS)]
    if len(kinds) > MAX_KINDS:
        found.append(f"{sum(kinds.values()) - sum(number for _, number in kinds.most_common(MAX_KINDS))} others")
    return "; ".join(found) or "none"


def described_amounts(amounts: Mapping[str, float]) -> list[str]:
    """Return amounts of resources in words.

    >>> described_amounts({"CPU": 1, "GPU": 2, "memory": 2**30, "accelerator_type:A100": 0.001})
    ['1 CPU', '2 GPUs', '1.0 GiB of memory', 'accelerator_type:A100']
    """
    found = [counted(amounts[name], name) for name in ("CPU", "GPU") if amounts.get(name)]
    found += [f"{amounts['memory'] / 2**30:.1f} GiB of memory"] if amounts.get("memory") else []
    others = [name for name in sorted(amounts) if name not in ("CPU", "GPU", "memory", "object_store_memory")]
    for name in others:
        if not name.startswith(("node:", "bundle")) and amounts[name]:
            found.append(name if name.startswith("accelerator_type:") else f"{amounts[name]:g} {name}")
    return found


def _described_node(node: Resources) -> str:
    parts = described_amounts(node)
    if not node.get("CPU"):
        parts.insert(0, "no CPU")
    if not node.get("GPU"):
        parts.insert(1, "no GPU")
    return ", ".join(parts)


def _size(amounts: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(amounts.get(name, 0) for name in ("GPU", "CPU", "memory"))
