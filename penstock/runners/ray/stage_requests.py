"""The actors that the stages of a query ask Ray for, with the options of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ray._common import ray_option_utils

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import Resources
from penstock.plan.stages import CallBatch, CallUdf, Stage
from penstock.runners.placement import LABEL, Amounts, WorkerRequest, sharing_key


def actor_options(resources: Resources) -> dict[str, Any]:
    """Return Ray's options for the actors of a stage.

    Without ``cpus`` an actor holds no core, as is Ray's default unless other resources are named. Stages outnumber
    cores: if each held some, the last stages would wait for the first forever.

    >>> actor_options(Resources(ray_options=(("accelerator_type", "A100"),)))["num_cpus"]
    0
    """
    options: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
    names_resources = not {"accelerator_type", "resources"}.isdisjoint(dict(resources.ray_options))
    if resources.cpus is not None or resources.gpus or names_resources:
        options |= {"num_cpus": resources.cpus or 0, "num_gpus": resources.gpus}
    if resources.memory_bytes is not None:
        options["memory"] = resources.memory_bytes
    return options | dict(resources.ray_options)


def actor_key(stage: Stage) -> str:
    """Return a key that is equal for stages that share actors: calls of one engine, methods of one object."""
    match stage.work:
        case CallUdf(call) if (engine := call.udf.builtin.event_loop) is not None:
            return f"{engine} {actor_options(stage.resources)}"
        case _:
            return sharing_key(stage)


def actor_requests(stages: Sequence[Stage]) -> dict[str, WorkerRequest]:
    """Return the actors with resources or labels of their own, by the keys of their stages.

    Raise InvalidArgumentError for options that Ray does not have.
    """
    found = {actor_key(stage): _request(stage) for stage in stages if isinstance(stage.work, CallUdf | CallBatch)}
    return {key: request for key, request in found.items() if request.demand}


def _request(stage: Stage) -> WorkerRequest:
    options, resources = actor_options(stage.resources), stage.resources
    _check_options(stage.name, options)
    if not isinstance(stage.work, CallUdf) or not stage.work.spec.target.is_async:
        return WorkerRequest(stage.name, demand_of(options), resources.min_workers, resources.min_workers)
    if stage.work.spec.builtin.event_loop and stage.resources.gpus:
        from penstock.runners.ray.engines import num_replicas  # few queries need the models

        number = num_replicas(stage.work)
        return WorkerRequest(stage.name, {"GPU": options["num_gpus"] / number}, number, number)
    return WorkerRequest(stage.name, demand_of(options), 1, 1)


def demand_of(options: Mapping[str, Any]) -> Amounts:
    """Return the resources that an actor with these options takes from its node.

    >>> demand_of({"num_gpus": 0.5, "num_cpus": 0, "scheduling_strategy": "SPREAD"})
    {'GPU': 0.5}
    """
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    amounts = {name: options.get(option) or 0 for name, option in named.items()} | dict(options.get("resources") or {})
    if options.get("accelerator_type"):
        amounts[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    amounts = {name: amount for name, amount in amounts.items() if amount}
    return amounts | dict.fromkeys(_selectors(options), 0.001 if amounts else 1)


def labels_of(stages: Sequence[Stage], node: Mapping[str, Any]) -> Amounts:
    """Return the labels that the stages ask for and a node has, as resources: one for each of its cores."""
    asked = {name: rule for stage in stages for name, rule in _selectors(dict(stage.resources.ray_options)).items()}
    num_cores = max(node["Resources"].get("CPU", 0), 1)
    return {name: num_cores for name, (key, rule) in asked.items() if is_selected(rule, node["Labels"].get(key))}


def _selectors(options: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    selectors = {} if options.get("fallback_strategy") else options.get("label_selector") or {}
    return {f"{LABEL}{key}={selector}": (key, str(selector)) for key, selector in selectors.items()}


def is_selected(selector: str, value: str | None) -> bool:
    """Return whether Ray's ``label_selector`` accepts the value of a label.

    >>> [[is_selected(rule, value) for value in ("a", "b", None)] for rule in ("a", "!a", "in(a, c)", "!in(a, c)")]
    [[True, False, False], [False, True, True], [True, False, False], [False, True, True]]
    """
    wanted = selector.removeprefix("!")
    listed = re.fullmatch(r"in\((.*)\)", wanted)
    values = {each.strip() for each in listed[1].split(",")} if listed else {wanted}
    return (value in values) != selector.startswith("!")


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    known = ray_option_utils.actor_options
    for option in options:
        if option not in known:
            raise InvalidArgumentError(
                f"{name}: ray_options has {option!r}, which is no option of Ray's actors.{did_you_mean(option, known)}"
            )
    try:
        ray_option_utils.validate_actor_options(dict(options), in_options=True)
    except (TypeError, ValueError) as exc:
        raise InvalidArgumentError(f"{name}: Ray refuses an option of its actors: {exc}") from exc
