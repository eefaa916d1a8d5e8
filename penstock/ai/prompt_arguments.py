"""The arguments of ``prompt``, checked and sorted once by who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.ai.dialogue import PromptSettings
from penstock.ai.model_columns import AiCall, resolve_call
from penstock.ai.option_types import CALL_OPTIONS
from penstock.ai.provider import Prompting, Provider
from penstock.ai.structured.return_formats import OutputFormat
from penstock.ai.structured.tools import tool_functions as checked_tools
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression
from penstock.expr.templates import constant_or_filled
from penstock.udf.options import check_whole


def prompt_call(
    provider: str | Provider | None,
    return_format: Any,
    options: Mapping[str, Any],
    *,
    model: Any,
    system_message: Any,
    tool_functions: Sequence[Callable[..., Any]],
    usage: bool,
    logprobs: Any,
    n: Any,
    max_reasks: Any,
    max_tool_rounds: Any,
) -> tuple[AiCall, PromptSettings, Mapping[str, Expression]]:
    """Return the call of the provider's model, the settings of its dialogues, and the options that each row sets.

    ``model`` and ``system_message`` may be among these options.
    """
    for name, value, least in (("n", n, 1), ("max_reasks", max_reasks, 0), ("max_tool_rounds", max_tool_rounds, 1)):
        if value is not None or name != "n":
            check_whole("prompt", name, value, least)
    _check_logprobs(logprobs, options.get("top_logprobs"))
    given = {"model": model, "system_message": constant_or_filled("prompt", system_message), **options}
    given |= {"logprobs": True} if logprobs else {}
    of_rows = {
        name: value
        for name, value in given.items()
        if isinstance(value, Expression) and name not in CALL_OPTIONS  # which take one value: an error
    }
    rest = {name: value for name, value in given.items() if name not in of_rows}
    system = rest.pop("system_message", None)
    if system is not None and not isinstance(system, str):
        raise InvalidArgumentError(f"prompt: system_message must be a text; got {type(system).__name__}.")
    settings = PromptSettings(
        system=system,
        output=None if return_format is None else OutputFormat.of(return_format),
        tools=checked_tools(tool_functions),
        num_answers=n if n is None or n > 1 else None,
        has_usage=usage,
        max_reasks=max_reasks,
        max_tool_rounds=max_tool_rounds,
        row_options=tuple(of_rows),
        has_logprobs=logprobs,
    )
    identity = {
        "system_message": system,
        "return_format": settings.output,
        "tool_functions": settings.tools,
        "n": settings.num_answers,
        "usage": usage or None,
        "max_reasks": max_reasks,
        "max_tool_rounds": max_tool_rounds if settings.tools else None,
        "expressions": settings.row_options,
    }
    fields = {"row_options": tuple(name for name in of_rows if name not in ("model", "system_message"))}
    call = resolve_call(Prompting, rest.pop("model", None), provider, rest, fields, identity, "model" in of_rows)
    paid = call.options.settings
    settings = replace(settings, provider=call.provider, price=paid.price, is_batch=paid.batch is not None)
    return call, settings, of_rows


def _check_logprobs(logprobs: Any, count: Any) -> None:
    if not isinstance(logprobs, bool):
        raise InvalidArgumentError(
            f"prompt: logprobs is True or False; got {logprobs!r}. top_logprobs=5 lists the five most likely tokens."
        )
    if count is not None:
        if not logprobs:
            raise InvalidArgumentError("prompt: top_logprobs has no effect without logprobs=True.")
        check_whole("prompt", "top_logprobs", count, 0)
