"""Compare two JSON trees, such as two fingerprints, and name the path, the old and the new value of each difference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_DIFFERENCES = 20
MAX_VALUE = 300  # characters of a value that are shown

_DETAILS = ("constants", "digest")
_DIGEST = re.compile(r",? ?\bdigest [0-9a-f]+")


def differences(then: Any, now: Any) -> list[str]:
    """Return a sentence for each difference; no sentence for equal trees.

    Objects are compared entry by entry, and lists of objects by name: the first entry of an object is its name. Digests
    are not shown. Entries ``constants`` and ``digest`` count only where no other differs.

    >>> then = {"steps": [{"step": "limit", "num_rows": 5}], "columns": {"a": "int64"}}
    >>> now = {"steps": [{"step": "limit", "num_rows": 9}], "columns": {"a": "int64", "b": "string"}}
    >>> differences(then, now)
    ['limit: num_rows changed from 5 to 9', "columns: b is new: 'string'"]
    """
    found = list(dict.fromkeys(_differences((), then, now)))
    left = len(found) - MAX_DIFFERENCES
    return found if left <= 0 else [*found[:MAX_DIFFERENCES], f"and {left:,} more differences"]


def changed_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> set[str] | None:
    """Return the inputs of two fingerprints that changed, came or went; None if anything else differs."""
    if differences(_without_versions(then), _without_versions(now)):
        return None
    found: set[str] = set()
    for before, after in zip(then["inputs"], now["inputs"], strict=True):
        old, new = before["versions"], after["versions"]
        found |= {name for name in (*old, *new) if old.get(name) != new.get(name)}
    return found


def _without_versions(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {**fingerprint, "inputs": [{**each, "versions": {}} for each in fingerprint["inputs"]]}


def _differences(path: tuple[str, ...], then: Any, now: Any) -> Iterator[str]:
    if then == now or _is_same_expression(then, now):
        return
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        yield from _entries(path, then, now)
    elif _is_list_of_objects(then) and _is_list_of_objects(now):
        yield from _items(path[:-1], then, now)
    elif (before := _shown(then)) != (after := _shown(now)):
        yield f"{_place(path)} changed from {before} to {after}"
    else:
        yield f"{_place(path)} changed"


def _entries(path: tuple[str, ...], then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    found: list[str] = []
    for name in dict.fromkeys((*then, *now)):
        if name in _DETAILS and found:
            continue
        place = path if name == "digest" else (*path, name)
        if name not in now:
            found.append(f"{_place(place)} is gone; it was {_shown(then[name])}")
        elif name not in then:
            found.append(f"{_place(place)} is new: {_shown(now[name])}")
        else:
            found += _differences(place, then[name], now[name])
    yield from found


def _items(path: tuple[str, ...], then: Sequence[Any], now: Sequence[Any]) -> Iterator[str]:
    """Compare items with the same name, in order; all others are gone or new."""
    old, new = ([_name(item) for item in items] for items in (then, now))
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for before, after in zip(then[i1:i2], now[j1:j2], strict=True):
                yield from _differences((*path, _name(after)), before, after)
            continue
        yield from (f"{_place((*path, _name(item)))} is gone; it was {_shown(item)}" for item in then[i1:i2])
        yield from (f"{_place((*path, _name(item)))} is new: {_shown(item)}" for item in now[j1:j2])


def _name(item: Any) -> str:
    return str(next(iter(item.values()), "")) if isinstance(item, Mapping) else "branch"


def _is_same_expression(then: Any, now: Any) -> bool:
    """Return True if two expressions compute the same, even if their texts differ."""
    are_expressions = all(isinstance(each, Mapping) and "expression" in each for each in (then, now))
    return are_expressions and "digest" in then and then["digest"] == now.get("digest")


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping | list) for item in value)


def _place(path: tuple[str, ...]) -> str:
    return ": ".join(path) or "it"


def _shown(value: Any) -> str:
    """Return a value as text without digests: the text of an expression, the entries of another object."""
    if isinstance(value, Mapping):
        entries = [f"{name} {_shown(each)}" for name, each in value.items() if name not in _DETAILS]
        text = str(value.get("expression") or ", ".join(entries))
    else:
        text = _DIGEST.sub("", repr(value))
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
