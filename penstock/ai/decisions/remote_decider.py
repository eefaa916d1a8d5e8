"""Choose how a server answers decisions: by a service for them, or by a language model's log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ai.client.api_call import Endpoint
from penstock.ai.decisions.composed_decider import RemoteDecider
from penstock.ai.decisions.decision_wire import DecisionWire
from penstock.ai.decisions.labels import judge_prompt
from penstock.ai.decisions.openai_decisions import MODELS, OpenAIDecisionWire
from penstock.ai.decisions.system_one import SystemOneWire
from penstock.ai.provider import Deciding, Prompter
from penstock.ai.providers.chat_completions import ChatWire
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.errors import InvalidArgumentError, check_choice

if TYPE_CHECKING:
    from penstock.ai.client.batch.batch_service import BatchService

WIRES: dict[str, type[DecisionWire]] = {"openai": OpenAIDecisionWire, "systemone": SystemOneWire}


def remote_decider(task: Deciding, model: str, endpoint: Endpoint, default: str, batches: BatchService) -> Prompter:
    """Return the model for a task. Option ``wire`` names the API of the server, else it is the provider's default.

    OpenAI's default is its service for decisions; its other models are judges.
    """
    is_judge = endpoint.base_url.startswith("https://api.openai.com") and model not in MODELS
    wire = task.options.get("wire") or ("logprobs" if is_judge else default)
    check_choice("decide: wire", wire, (*WIRES, "logprobs"))
    if wire in WIRES:
        return service_decider(task, model, endpoint, WIRES[wire])
    limit = "max_tokens" if default == "logprobs" else "max_output_tokens"
    chat = ChatWire.of(judge_prompt(task, limit), endpoint.provider, model)
    judge = ApiPrompter(endpoint, chat, model, task.settings, batches)
    return RemoteDecider([judge] * len(task.questions), [question for _, question in task.questions])


def service_decider(task: Deciding, model: str, endpoint: Endpoint, wire: type[DecisionWire]) -> Prompter:
    """Return the model of a service for decisions: one call for a row, or as many as the service requires."""
    if task.settings.batch is not None:
        raise InvalidArgumentError(f"decide: {wire.service} has no batch API; leave out batch_api=True.")
    size = wire.limits.questions or len(task.questions)
    # Decisions have another price than the texts of the same model.
    billed = f"{model}-decisions" if wire is OpenAIDecisionWire and model in MODELS else model
    parts = [
        ApiPrompter(
            endpoint,
            wire.about(task, endpoint.provider, model, task.questions[start : start + size]),
            billed,
            task.settings,
        )
        for start in range(0, len(task.questions), size)
    ]
    return parts[0] if len(parts) == 1 else RemoteDecider(parts, [None] * len(parts))
