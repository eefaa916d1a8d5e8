"""Failed rows by the kind of their error: errors that differ only in numbers and quoted values are of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from penstock.events.events import RowError

MAX_KINDS = 50
MAX_CHARS = 300  # of a message that is compared
VARIABLE = re.compile(r"""'[^']*'|"[^"]*"|[0-9][0-9,.]*|\b[0-9a-f]{8,}\b""")


def error_kind(error: RowError) -> str:
    """Return the name of the kind of an error.

    >>> rows = [RowError("prompt", "", "ValueError", f"{n} is above 5, in 'row {n}'", "") for n in (17, 18)]
    >>> list(map(error_kind, rows))
    ['prompt: ValueError: # is above # in …', 'prompt: ValueError: # is above # in …']
    """
    message = VARIABLE.sub(lambda found: "#" if found[0][0].isdigit() else "…", error.message[:MAX_CHARS])
    return f"{error.operator}: {error.error_type}: {message}"


class ErrorKinds:
    """Counts failed rows by kind. Kinds after the first fifty are left out."""

    def __init__(self, errors: Iterable[RowError] = ()) -> None:
        self._kinds: dict[str, dict[str, Any]] = {}
        for error in errors:
            self.add(error)

    def add(self, error: RowError) -> bool:
        """Count a row; return True for the first one of a kind."""
        name = error_kind(error)
        if (kind := self._kinds.get(name)) is None:
            if len(self._kinds) >= MAX_KINDS:
                return False
            values: dict[str, Any] = {
                "kind": name,
                "operator": error.operator,
                "error_type": error.error_type,
                "count": 0,
            }
            kind = self._kinds[name] = values | {"message": error.message[:MAX_CHARS]}
        kind["count"] += 1
        return bool(kind["count"] == 1)

    def values(self) -> list[dict[str, Any]]:
        """Return the kinds as JSON values, the most frequent first."""
        return sorted(self._kinds.values(), key=lambda kind: -kind["count"])
