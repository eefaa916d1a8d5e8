"""Options that several commands share: a dataclass for each group, whose fields become options of the command."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose type is a dataclass by an option for each field of it."""
    groups: dict[str, Any] = {}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in _parameters(command).items():
        group: Any = parameter.annotation
        if dataclasses.is_dataclass(group):
            groups[name] = group
            options |= _parameters(cast(Callable[..., Any], group))
        else:
            options[name] = parameter

    @functools.wraps(command)
    def call(**values: Any) -> None:
        filled = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**values, **filled)

    call.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: option.annotation for name, option in options.items()}
    return call


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters by name, as keywords, because a parameter with a default may come before one without."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
    }
