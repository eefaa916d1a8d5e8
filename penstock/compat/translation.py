"""Functions of Penstock with the parameters of another system: renamed, ignored or refused."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.compat.remedies import PARAMETERS
from penstock.errors import InvalidArgumentError
from penstock.udf.option_spellings import ACCEPTED

SEE_PAGE = "remove it, or see the migration page in docs/"
Translate = Callable[[Any], Any]


def translated(
    function: Callable[..., Any],
    name: str,
    *,
    renamed: Mapping[str, str] | None = None,
    values: Mapping[str, Translate] | None = None,
    ignored: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
    returns: Translate | None = None,
) -> Callable[..., Any]:
    """Return ``function`` as the other system's ``name``.

    ``renamed`` maps its parameters to Penstock's, ``values`` translates arguments, ``ignored`` parameters change no
    result. ``defaults`` are Penstock's where the other system's differ. Any other parameter that ``function`` lacks is
    refused unless it is None.
    """
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        options = dict(defaults or {})
        for key, given in kwargs.items():
            if key in ignored:
                continue
            ours = (renamed or {}).get(key, key)
            if ours not in parameters and ACCEPTED.get(ours) not in parameters and not takes_any:
                if given is not None:
                    raise refusal(f"{name}({key}=...)", PARAMETERS.get(key, SEE_PAGE))
                continue
            options[ours] = values[key](given) if values and key in values and given is not None else given
        result = function(*args, **options)
        return result if returns is None else returns(result)

    applied = {
        name: ours for name, ours in (renamed or {}).items() if name != ours and (ours in parameters or takes_any)
    }
    vars(call)["translation"] = {"renamed": applied, "ignored": sorted(ignored)}
    return call


def refusal(what: str, remedy: str = SEE_PAGE) -> InvalidArgumentError:
    """Return the error for something that has no equivalent here."""
    return InvalidArgumentError(f"Penstock cannot honour {what}; {remedy}.")
