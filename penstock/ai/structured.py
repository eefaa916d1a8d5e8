"""The form an answer must have: from a pydantic model, a JSON schema or a type, to a schema that providers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.types import DataType


@dataclass(frozen=True)
class OutputFormat:
    """What ``return_format`` means: the type of the column, the schema that the model is shown, how to read an answer."""

    name: str
    dtype: DataType
    schema: dict[str, Any]

    @staticmethod
    def of(return_format: Any) -> OutputFormat:
        """Return the format for a pydantic model, a JSON schema, a DataType or a Python type."""
        raise NotImplementedError

    def strict_schema(self) -> dict[str, Any] | None:
        """Return the schema as OpenAI's strict mode wants it; None where it cannot be said there."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Return an answer as a plain value of ``dtype``, or raise InvalidAnswerError in words that help the model."""
        raise NotImplementedError
