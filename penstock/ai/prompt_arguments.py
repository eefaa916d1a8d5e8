"""``PromptArguments``: what a user gives to ``prompt``, checked and sorted once by who reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class PromptArguments:
    """The arguments of one ``prompt`` besides its message."""

    model: Any
    """The name of the model, None if it is the default or if each row names one."""
    options: Mapping[str, Any]
    """Options of the model and of its calls, the same for all rows."""
    of_rows: Mapping[str, Expression]
    """Options with a value for each row, by name; ``model`` and ``system_message`` may be among them."""
    settings: PromptSettings
    """How the dialogue of a row goes on: the format of its answer, tools, repeated requests."""

    @staticmethod
    def of(
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
    ) -> PromptArguments:
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
        return PromptArguments(rest.pop("model", None), rest, of_rows, settings)

    def call(self, provider: str | Provider | None) -> tuple[AiCall, PromptSettings]:
        """Return the call of the provider's model, and the settings of its dialogues."""
        names = tuple(name for name in self.of_rows if name not in ("model", "system_message"))
        fields = {"row_options": names}
        call = resolve_call(
            Prompting, self.model, provider, self.options, fields, self._identity, "model" in self.of_rows
        )
        paid = call.options.settings
        return call, replace(self.settings, provider=call.provider, price=paid.price, is_batch=paid.batch is not None)

    @property
    def _identity(self) -> dict[str, Any]:
        given = self.settings
        return {
            "system_message": given.system,
            "return_format": given.output,
            "tool_functions": given.tools,
            "n": given.num_answers,
            "usage": given.has_usage or None,
            "max_reasks": given.max_reasks,
            "max_tool_rounds": given.max_tool_rounds if given.tools else None,
            "expressions": given.row_options,
        }


def _check_logprobs(logprobs: Any, count: Any) -> None:
    if not isinstance(logprobs, bool):
        raise InvalidArgumentError(
            f"prompt: logprobs is True or False; got {logprobs!r}. top_logprobs=5 lists the five most likely tokens."
        )
    if count is not None:
        if not logprobs:
            raise InvalidArgumentError("prompt: top_logprobs has no effect without logprobs=True.")
        check_whole("prompt", "top_logprobs", count, 0)
