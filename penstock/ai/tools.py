"""Python functions that a model may call: their schema, and calling them with what the model wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.ai.conversation import ToolCall, ToolResult


@dataclass(frozen=True)
class ToolFunction:
    """A function as models are told of it."""

    name: str
    description: str
    schema: dict[str, Any]  # JSON schema of its arguments
    function: Callable[..., Any]

    @staticmethod
    def of(function: Callable[..., Any]) -> ToolFunction:
        """Return what a model is told of a function: from its name, docstring and hints."""
        raise NotImplementedError

    async def run(self, call: ToolCall) -> ToolResult:
        """Call the function with what the model wrote; what goes wrong is told to the model, not raised."""
        raise NotImplementedError
