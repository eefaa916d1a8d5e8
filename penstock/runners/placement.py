"""Place workers on a machine or a cluster: how many workers a stage gets, and which devices. Pure functions."""

from __future__ import annotations

import functools
import math
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from penstock.config import available_cpus, machine_memory
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchSpec, Resources, UdfSpec
from penstock.plan.stages import AtMost, CallBatch, CallUdf, Exactly, Stage

Devices = tuple[str, ...]
Amounts = Mapping[str, float]  # of resources, by Ray's names

ASYNC_SPARE_TASKS = 8  # so that the loop makes the calls of the next task while one waits for its slowest row
ASYNC_OVERSUBSCRIPTION = 8
"""Factor on the tasks in flight of an API stage. Answers of models differ in length, and so in time, by a factor of ten
and more, so most tasks wait for their slowest row."""
LABEL = "label "  # the prefix of node labels, which count as resources without a limit
MIN_SHARE = 0.01  # share of a GPU: less would start hundreds of workers
SLACK = 1e-9  # fractions such as 0.1 do not add up to exactly one


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources of a machine. ``gpus`` are names as in CUDA_VISIBLE_DEVICES."""

    num_cpus: float
    gpus: Devices
    memory_bytes: int

    @property
    def amounts(self) -> Amounts:
        return {"CPU": self.num_cpus, "GPU": len(self.gpus), "memory": self.memory_bytes}


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The resources of each worker of a stage, and their number; without ``max_workers``, as many as fit."""

    name: str
    demand: Amounts
    min_workers: int = 1
    max_workers: int | None = None

    def __str__(self) -> str:
        return f"{counted(self.min_workers, 'worker')} of {self.name} with {described_amounts(self.demand)} each"


def worker_request(stage: Stage, num_cores: int) -> WorkerRequest | None:
    """Return the workers that a stage needs on this machine; None for one without a user function."""
    match stage.work:
        case CallUdf(call) if call.udf.target.is_async:  # one event loop, with a limit on calls
            if stage.resources.use_process:
                return WorkerRequest(stage.name, demand_of(stage.resources), 1, 1)
            if stage.resources.gpus and call.udf.builtin.event_loop is None:
                raise InvalidArgumentError(
                    f"{stage.name}: async functions share this process, which has no GPU of its own. "
                    "Leave out gpus=, or set use_process=True."
                )
            # An engine in this process uses the GPUs that it sees; only on Ray are they reserved.
            return WorkerRequest(stage.name, demand_of(replace(stage.resources, gpus=0)), 1, 1)
        case CallUdf() | CallBatch():
            resources = stage.resources
            if resources.gpus and resources.use_process is False:
                raise InvalidArgumentError(
                    f"{stage.name}: gpus={resources.gpus:g} with use_process=False: only a worker process "
                    "gets its own GPU. Leave out use_process=False, or gpus= to share all GPUs in this process."
                )
            as_many_as_fit = resources.gpus and resources.max_workers is None
            most = None if as_many_as_fit else max(worker_count(stage.work.spec, num_cores), resources.min_workers)
            return WorkerRequest(stage.name, demand_of(resources), resources.min_workers, most)
    return None


def placed_workers(machine: Machine, stages: Sequence[Stage], num_cores: int) -> dict[str, list[Devices]]:
    """Return the devices of each worker of the stages with user functions, by sharing key."""
    requests = {sharing_key(stage): each for stage in stages if (each := worker_request(stage, num_cores)) is not None}
    placed = place([machine.amounts], list(requests.values()), f"this machine has {described_node(machine.amounts)}")
    devices = [[tuple(machine.gpus[number] for number in gpus) for gpus in workers] for workers in placed]
    return dict(zip(requests, devices, strict=True))


def sharing_key(stage: Stage) -> str:
    """Return the same key for stages that share workers, because they call methods of one object in the same way."""
    match stage.work:
        case CallUdf(call) if call.udf.target.owner is not None:
            return f"{call.udf.target.owner} {call.udf.target.is_async} {stage.resources}"
        case _:
            return f"stage {id(stage)}"


def worker_count(spec: UdfSpec | BatchSpec, num_cores: int) -> int:
    """Return how many workers a function gets: the requested number, else one for a class, whose model may be large."""
    if spec.resources.max_workers is not None:
        return spec.resources.max_workers
    return 1 if spec.target.is_class else num_cores


def num_async_tasks(stage: Stage, spec: UdfSpec) -> int:
    """Return how many tasks of an async stage run at once, enough for as many calls as the user allows."""
    calls_per_task = 1
    if isinstance(stage.inbox, Exactly | AtMost) and not spec.target.is_batch:
        calls_per_task = stage.inbox.num_rows
    factor = 1 if spec.builtin.task_rows is None else ASYNC_OVERSUBSCRIPTION
    return ASYNC_SPARE_TASKS + spec.max_concurrent_calls // calls_per_task * factor


def place(nodes: Sequence[Amounts], requests: Sequence[WorkerRequest], offer: str) -> list[list[list[int]]]:
    """Return the workers of each request, each as the numbers of its GPUs. No GPU is given out twice.

    All stages run at the same time, so each stage first gets its minimum, large workers before small ones, which fill
    gaps, on the smallest nodes that have room. Then the stages get one more worker each, in turn, while there is room.
    Raise InvalidArgumentError if a minimum does not fit into the ``offer``, a text that describes the nodes.
    """
    for request in requests:
        _check(nodes, request, offer)
    free = [FreeResources(node) for node in sorted(nodes, key=_size)]
    placed = [_PlacedWorkers(request, free) for request in requests]
    for each in sorted(placed, key=lambda each: _size(each.request.demand), reverse=True):
        for _ in range(each.request.min_workers):
            if not each.has_grown():
                needed = "; ".join(str(request) for request in requests if request.demand)
                raise InvalidArgumentError(
                    f"This query needs more than there is at once: {offer}. It needs {needed}. "
                    "Use fewer workers, less for each worker, or a part of a GPU, such as gpus=0.5."
                )
    growing = [each for each in placed if each.request.max_workers != len(each.gpus)]
    while growing:
        growing = [each for each in growing if each.has_grown() and each.request.max_workers != len(each.gpus)]
    return [each.gpus for each in placed]


class _PlacedWorkers:
    """The workers of a request so far."""

    def __init__(self, request: WorkerRequest, nodes: Sequence[FreeResources]) -> None:
        self.request = request
        self.gpus: list[list[int]] = []
        self._nodes = deque(nodes)  # that may have room

    def has_grown(self) -> bool:
        """Add a worker if it fits; return False otherwise."""
        while self._nodes:
            gpus = self._nodes[0].take(self.request.demand)
            if gpus is not None:
                self.gpus.append(gpus)
                return True
            self._nodes.popleft()
        return False


class FreeResources:
    """The resources that no worker has yet, on a machine or a node of a cluster."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = dict(amounts)
        self._gpus = [1.0] * int(amounts.get("GPU", 0))

    def take(self, wanted: Amounts) -> list[int] | None:
        """Take the resources of one worker and return the numbers of its GPUs, or None if they do not fit."""
        share, num_gpus, gpus = min(wanted.get("GPU", 0), 1.0), math.ceil(wanted.get("GPU", 0)), list[int]()
        if num_gpus:  # the fullest first, so that others stay whole
            fitting = [number for number, free in enumerate(self._gpus) if free >= share - SLACK]
            gpus = sorted(fitting, key=self._gpus.__getitem__)[:num_gpus]
        others = [(name, amount) for name, amount in wanted.items() if name != "GPU"]
        has_rest = all(self._amounts.get(name, 0) >= amount - SLACK for name, amount in others)
        if len(gpus) < num_gpus or not has_rest:
            return None
        for name, amount in others:
            self._amounts[name] -= amount
        for number in gpus:
            self._gpus[number] -= share
        return gpus


def demand_of(resources: Resources) -> Amounts:
    amounts = {"CPU": resources.cpus or 0, "GPU": resources.gpus, "memory": resources.memory_bytes or 0}
    return {name: amount for name, amount in amounts.items() if amount}


def labels_among(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name.startswith(LABEL)}


def _size(amounts: Amounts) -> tuple[float, ...]:
    return tuple(amounts.get(name, 0) for name in ("GPU", "CPU", "memory"))


def _check(nodes: Sequence[Amounts], request: WorkerRequest, offer: str) -> None:
    """Raise InvalidArgumentError for a worker that does not fit even alone."""
    gpus = request.demand.get("GPU", 0)
    if gpus > 1 and gpus != int(gpus):
        raise InvalidArgumentError(
            f"{request.name}: gpus={gpus:g}; a worker gets a part of one GPU or several whole ones"
        )
    if 0 < gpus < MIN_SHARE:
        raise InvalidArgumentError(f"{request.name}: gpus={gpus:g}; the least part of a GPU is {MIN_SHARE}")
    if not has_room(nodes, request.demand):
        raise InvalidArgumentError(
            f"{request.name} needs {described_amounts(request.demand)} for each worker, but {offer}."
        )


def has_room(nodes: Sequence[Amounts], demand: Amounts) -> bool:
    """Return whether a node can hold a worker."""
    return any(FreeResources(node).take(demand) is not None for node in nodes)


def most_workers(nodes: Sequence[Amounts], demand: Amounts, others: Sequence[tuple[Amounts, int]]) -> int:
    """Return how many workers a stage may have beside the ``others``, by their demands and numbers.

    >>> most_workers([{"CPU": 8, "GPU": 2}, {"CPU": 4}, {"CPU": 4, "GPU": 1}], {"GPU": 0.5, "CPU": 1}, [])
    6
    >>> most_workers([{"GPU": 4}], {"GPU": 1}, [({"GPU": 0.5}, 1), ({"CPU": 1}, 1)])
    3
    """
    fitting = sum(min(int(node.get(name, 0) / amount + SLACK) for name, amount in demand.items()) for node in nodes)
    taken = [sum(other.get(name, 0) * number for other, number in others) / demand[name] for name in demand]
    return fitting - math.ceil(max(taken, default=0))


def described_amounts(amounts: Amounts) -> str:
    """Return amounts of resources, by Ray's names, in words.

    >>> described_amounts({"CPU": 1, "GPU": 2, "memory": 2**30, "accelerator_type:A100": 0.001})
    '1 CPU, 2 GPUs, 1.0 GiB of memory, accelerator_type:A100'
    """
    found = [counted(amounts[name], name) for name in ("CPU", "GPU") if amounts.get(name)]
    found += [f"{amounts['memory'] / 2**30:.1f} GiB of memory"] if amounts.get("memory") else []
    others = [name for name in sorted(amounts) if name not in ("CPU", "GPU", "memory", "object_store_memory")]
    for name in others:
        if not name.startswith(("node:", "bundle")) and amounts[name]:
            found.append(name if name.startswith(("accelerator_type:", LABEL)) else f"{amounts[name]:g} {name}")
    return ", ".join(found)


def described_node(amounts: Amounts) -> str:
    missing = [f"no {name}" for name in ("CPU", "GPU") if not amounts.get(name)]
    return ", ".join([described_amounts(amounts), *missing]).removeprefix(", ")


def counted(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' if number > 1 else ''}"


def this_machine() -> Machine:
    """Return the resources that this process may use. CUDA_VISIBLE_DEVICES, if set, names all its GPUs."""
    return Machine(available_cpus(), visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")), machine_memory())


def visible_gpus(variable: str | None) -> Devices:
    """Return the GPUs that CUDA would see. Like CUDA, stop at the first invalid name.

    >>> visible_gpus("2, 0"), visible_gpus("1,-1,0"), visible_gpus("")
    (('2', '0'), ('1',), ())
    """
    if variable is not None:
        names = (name.strip() for name in variable.split(","))
        return tuple(dict.fromkeys(takewhile(lambda name: name not in ("", "-1"), names)))
    return tuple(map(str, range(_num_devices())))


@functools.cache
def _num_devices() -> int:
    return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").glob("nvidia*"))
