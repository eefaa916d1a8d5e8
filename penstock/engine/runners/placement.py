"""Which worker gets which device and how many workers a stage gets: pure functions of the machine and the wishes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from penstock.config import available_cpus, machine_memory
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchSpec, Resources, UdfSpec
from penstock.plan.stages import CallBatch, CallUdf, Stage

Devices = tuple[str, ...]

MIN_SHARE = 0.01  # of a GPU: less would start workers by the hundred
_SLACK = 1e-9  # fractions such as 0.1 do not add up to exactly one


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to give. ``gpus`` are the names that CUDA_VISIBLE_DEVICES knows them by."""

    num_cpus: float
    gpus: Devices
    memory_bytes: int

    def __str__(self) -> str:
        gpus = f"{_counted(len(self.gpus), 'GPU')} ({', '.join(self.gpus)})" if self.gpus else "no GPU"
        return f"{_counted(self.num_cpus, 'CPU')}, {gpus}, {self.memory_bytes / 2**30:.1f} GiB of memory"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a stage asks for each of its workers, and how many of them; no ``max_workers`` means as many as fit."""

    name: str
    resources: Resources
    min_workers: int = 1
    max_workers: int | None = None

    def __str__(self) -> str:
        return f"{_counted(self.min_workers, 'worker')} of {self.name} with {_amounts(self.resources)} each"


def wish_of(stage: Stage, num_cores: int) -> Wish | None:
    """Return what a stage asks of this machine; None for one without a user's function."""
    match stage.work:
        case CallUdf(call) if (
            call.udf.target.is_async
        ):  # one event loop in this process; its bound is on calls, not workers
            if stage.resources.gpus:
                raise InvalidArgumentError(
                    f"{stage.name}: async functions share this process, which has no GPU of its own. "
                    "Leave out gpus=, or async, or give a class to map_batches."
                )
            return Wish(stage.name, stage.resources, 1, 1)
        case CallUdf() | CallBatch():
            resources = stage.resources
            if resources.gpus and resources.use_process is False:
                raise InvalidArgumentError(
                    f"{stage.name}: gpus={resources.gpus:g} with use_process=False: a worker gets its own GPU by being "
                    "a process of its own. Leave out use_process=False, or gpus= to share all GPUs in this process."
                )
            spec = stage.work.call.udf if isinstance(stage.work, CallUdf) else stage.work.spec
            as_many_as_fit = resources.gpus and resources.max_workers is None
            most = None if as_many_as_fit else max(worker_count(spec, num_cores), resources.min_workers)
            return Wish(stage.name, resources, resources.min_workers, most)
    return None


def placed_workers(machine: Machine, stages: Sequence[Stage], num_cores: int) -> dict[str, list[Devices]]:
    """Return the workers of each stage that has a user's function, each with its devices, by its sharing key."""
    wishes = {sharing_key(stage): wish for stage in stages if (wish := wish_of(stage, num_cores)) is not None}
    return dict(zip(wishes, place(machine, list(wishes.values())), strict=True))


def sharing_key(stage: Stage) -> str:
    """Return what stages have in common that share their workers: those that call methods of one object alike."""
    match stage.work:
        case CallUdf(call) if call.udf.target.owner is not None:
            return f"{call.udf.target.owner} {call.udf.target.is_async} {stage.resources}"
        case _:
            return f"stage {id(stage)}"


def worker_count(spec: UdfSpec | BatchSpec, num_cores: int) -> int:
    """Return how many workers a function gets: what the user says, else one for a class, whose model may be large."""
    if spec.resources.max_workers is not None:
        return spec.resources.max_workers
    return 1 if spec.target.is_class else num_cores


def place(machine: Machine, wishes: Sequence[Wish]) -> list[list[Devices]]:
    """Return for each wish its workers, each with its devices. Nothing is given out twice.

    Every stage first gets the workers it cannot do without, as all stages run at the same time: the largest first, so
    that the small fill the gaps. What is left goes round, one worker at a time. A query that does not fit is refused.
    """
    for wish in wishes:
        _check(machine, wish)
    ledger = _Ledger(machine)
    placed: list[list[Devices]] = [[] for _ in wishes]
    pairs = list(zip(wishes, placed, strict=True))
    for wish, workers in sorted(pairs, key=lambda pair: -pair[0].resources.gpus):
        for _ in range(wish.min_workers):
            devices = ledger.take(wish.resources)
            if devices is None:
                raise InvalidArgumentError(_refusal(machine, wishes))
            workers.append(devices)
    growing = pairs
    while growing:
        growing = [(wish, workers) for wish, workers in growing if _has_grown(wish, workers, ledger)]
    return placed


def _has_grown(wish: Wish, workers: list[Devices], ledger: _Ledger) -> bool:
    """Add a worker if it is wished for and there is room; say whether there was."""
    if wish.max_workers is not None and len(workers) >= wish.max_workers:
        return False
    devices = ledger.take(wish.resources)
    if devices is not None:
        workers.append(devices)
    return devices is not None


class _Ledger:
    """What is still free while places are given out."""

    def __init__(self, machine: Machine) -> None:
        self._cpus = machine.num_cpus
        self._memory_bytes = machine.memory_bytes
        self._gpus = dict.fromkeys(machine.gpus, 1.0)

    def take(self, resources: Resources) -> Devices | None:
        """Give a worker its share and return its devices, or None if not all of it is there."""
        cpus, memory_bytes = resources.cpus or 0, resources.memory_bytes or 0
        devices = self._pick(resources.gpus)
        if devices is None or cpus > self._cpus + _SLACK or memory_bytes > self._memory_bytes:
            return None
        self._cpus -= cpus
        self._memory_bytes -= memory_bytes
        for device in devices:
            self._gpus[device] -= min(resources.gpus, 1.0)
        return devices

    def _pick(self, gpus: float) -> Devices | None:
        share, num_devices = min(gpus, 1.0), max(int(gpus), 1)
        if not share:
            return ()
        fitting = [device for device, free in self._gpus.items() if free >= share - _SLACK]
        fitting.sort(key=lambda device: self._gpus[device])  # the fullest first, so that others stay whole
        return tuple(fitting[:num_devices]) if len(fitting) >= num_devices else None


def _check(machine: Machine, wish: Wish) -> None:
    """Refuse a worker that could not even run alone."""
    resources = wish.resources
    if resources.gpus > 1 and resources.gpus != int(resources.gpus):
        raise InvalidArgumentError(
            f"{wish.name}: gpus={resources.gpus:g}; a worker gets a part of one GPU or several whole ones"
        )
    if 0 < resources.gpus < MIN_SHARE:
        raise InvalidArgumentError(f"{wish.name}: gpus={resources.gpus:g}; the least part of a GPU is {MIN_SHARE}")
    if _Ledger(machine).take(resources) is None:
        raise InvalidArgumentError(
            f"{wish.name} asks for {_amounts(resources)} for each worker, but this machine has {machine}."
        )


def _refusal(machine: Machine, wishes: Sequence[Wish]) -> str:
    asked = "; ".join(str(wish) for wish in wishes if _amounts(wish.resources))
    return (
        f"This query needs more than this machine has at once, which is {machine}. It asks for {asked}. "
        "Ask for fewer workers, for less a worker, or for a part of a GPU, as in gpus=0.5."
    )


def _amounts(resources: Resources) -> str:
    parts = [_counted(resources.gpus, "GPU")] if resources.gpus else []
    parts += [_counted(resources.cpus, "CPU")] if resources.cpus else []
    parts += [f"{resources.memory_bytes / 2**30:.1f} GiB of memory"] if resources.memory_bytes else []
    return ", ".join(parts)


def _counted(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' if number > 1 else ''}"


def this_machine() -> Machine:
    """Return what this process may use. A CUDA_VISIBLE_DEVICES that is set names all the GPUs there are."""
    return Machine(available_cpus(), visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")), machine_memory())


def visible_gpus(variable: str | None) -> Devices:
    """Return the GPUs that CUDA would see; as it does, stop at the first name that is none.

    >>> visible_gpus("2, 0"), visible_gpus("1,-1,0"), visible_gpus("")
    (('2', '0'), ('1',), ())
    """
    if variable is not None:
        names = (name.strip() for name in variable.split(","))
        return tuple(dict.fromkeys(takewhile(lambda name: name not in ("", "-1"), names)))
    num_devices = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").glob("nvidia*"))
    return tuple(map(str, range(num_devices)))
