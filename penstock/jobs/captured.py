"""Lists, dicts and objects that the functions of a job capture, compared within the process that began it.

In another process they are as the script makes them. In this one they may have changed since without any change of the
script: that of the same object is its state. Another object with other content is a change, as of a notebook's cell.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from penstock.plan.identity.code_keys import Captured, mutable_values_left_out
from penstock.plan.identity.fingerprint import fingerprint
from penstock.plan.nodes import Plan

_THIS_PROCESS = secrets.token_hex(8)
_kept_alive: dict[int, Any] = {}  # what jobs captured, so that no other object gets the same id in this process


def described_here(plan: Plan) -> dict[str, Any]:
    """Return the description of a plan for later runs in this process."""
    with mutable_values_left_out() as captured:
        query = fingerprint(plan)
    return {"process": _THIS_PROCESS, "query": query, "captured": [_told(each) for each in captured]}


def _told(captured: Captured) -> list[Any]:
    _kept_alive[id(captured.value)] = captured.value
    return [captured.function, id(captured.value), captured.digest.hex()]


def queries_here(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two queries with what they capture, to be compared; None where the first was described elsewhere."""
    if then["process"] != now["process"]:
        return None
    pairs = zip_longest(then["captured"], now["captured"])
    captured = [before if _is_same(before, after) else after for before, after in pairs]
    return {**then["query"], "captured": then["captured"]}, {**now["query"], "captured": captured}


def _is_same(before: Sequence[Any] | None, after: Sequence[Any] | None) -> bool:
    """Say whether a value is the same object as before, or has the same content."""
    return before is not None and after is not None and (before[1] == after[1] or before[2] == after[2])
