"""The actors that the stages of a query ask Ray for, with the options of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray._common import ray_option_utils

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.udf import Resources
from penstock.plan.stages import CallBatch, CallUdf, Stage
from penstock.runners.placement import sharing_key
from penstock.runners.ray.node_fit import ActorRequest


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


def actor_requests(stages: Sequence[Stage]) -> dict[str, ActorRequest]:
    """Return the actors with resources or labels of their own, by the keys of their stages.

    Raise InvalidArgumentError for options that Ray does not have.
    """
    found = {actor_key(stage): _request(stage) for stage in stages if isinstance(stage.work, CallUdf | CallBatch)}
    return {key: request for key, request in found.items() if request.amounts}


def _request(stage: Stage) -> ActorRequest:
    options = actor_options(stage.resources)
    _check_options(stage.name, options)
    if not isinstance(stage.work, CallUdf) or not stage.work.spec.target.is_async:
        return ActorRequest(stage.name, options, stage.resources.min_workers)
    if stage.work.spec.builtin.event_loop and stage.resources.gpus:
        from penstock.runners.ray.engines import num_replicas  # few queries need the models

        number = num_replicas(stage.work)
        return ActorRequest(stage.name, options | {"num_gpus": options["num_gpus"] / number}, number)
    return ActorRequest(stage.name, options)


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
