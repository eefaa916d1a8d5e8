"""How two fingerprints differ, in sentences for the one who changed a script and runs it again."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

MOST_NAMED = 5  # of many changes of one kind
_WORDS = {"system_message": "system message", "return_format": "return format", "base_url": "base URL", "n": "number n"}


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what is different now, a sentence for each thing; nothing for equal fingerprints.

    >>> then = {"inputs": [], "steps": [{"step": "limit", "options": {"num_rows": 5}}], "schema": {"a": "int64"}}
    >>> now = {"inputs": [], "steps": [{"step": "limit", "options": {"num_rows": 9}}], "schema": {"a": "string"}}
    >>> changes(then, now)
    ['limit: num_rows was 5 and is 9', "column 'a' was int64 and is string"]
    """
    if _compared(then) == _compared(now):
        return []
    if then.get("format") != now.get("format"):
        return ["it was begun by a version of penstock that describes jobs in another way"]
    types = list(_schema_changes(then.get("schema"), now.get("schema")))
    named = _new_and_gone(then.get("schema"), now.get("schema"))
    found = [
        *_input_changes(then["inputs"], now["inputs"]),
        *_step_changes(then["steps"], now["steps"], named),
        *types,
        *_order_changes(then.get("schema"), now.get("schema")),
        *_captured_changes(then, now),
    ]
    return list(dict.fromkeys(found)) or ["something in the plan was changed"]


def changed_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> set[str] | None:
    """Return the inputs that were changed, came or went, where nothing else is different; else None."""
    if _compared(_without_versions(then)) != _compared(_without_versions(now)):
        return None
    found: set[str] = set()
    for before, after in zip(then["inputs"], now["inputs"], strict=True):
        old, new = before["versions"], after["versions"]
        found |= {name for name in (*old, *new) if old.get(name) != new.get(name)}
    return found


def _compared(fingerprint: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return what fingerprints are compared by: all that is in them, and the order of the columns that come out."""
    return _canonical(fingerprint), list(fingerprint.get("schema") or ())


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _without_versions(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    inputs = [{name: value for name, value in each.items() if name != "versions"} for each in fingerprint["inputs"]]
    return {**fingerprint, "inputs": inputs}


# --- inputs -----------------------------------------------------------------------------------------------------------


def _input_changes(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(then) != len(now):
        yield f"there {'was' if len(then) == 1 else 'were'} {_counted(len(then), 'input')}, and now {len(now)}"
    for before, after in zip(then, now, strict=False):
        if before["name"] != after["name"]:
            yield f"rows came from {before['name']} and come from {after['name']}"
        else:
            yield from _option_changes(f"{after['name']}: ", before["options"], after["options"])
            yield from _input_schema_changes(before, after)
        yield from _version_changes(before["versions"], after["versions"])


def _input_schema_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for text in _schema_changes(before.get("schema"), after.get("schema")):
        yield f"{after['name']}: {text}"


def _version_changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    changed = [name for name in now if name in then and then[name] != now[name]]
    yield from _few([f"{_kind(name)} was changed ({_told_versions(then[name], now[name])})" for name in changed])
    yield from _few([f"{_kind(name)} is new" for name in now if name not in then])
    yield from _few([f"{_kind(name)} is gone" for name in then if name not in now])


def _kind(name: str) -> str:
    return f"input {'file ' if '/' in name else ''}{name!r}"


def _told_versions(then: str, now: str) -> str:
    """Return how two versions differ: by the first thing that does, without digests, which tell people nothing.

    >>> _told_versions("120 bytes, modified 10:00", "140 bytes, modified 11:00")
    'it had 120 bytes, it has 140'
    >>> _told_versions("3 rows, digest ab", "3 rows, digest cd")
    'it has other content'
    """
    for unit in ("bytes", "rows", "items"):
        counts = [re.match(rf"(\d+) {unit}\b", version) for version in (then, now)]
        if counts[0] and counts[1] and counts[0][1] != counts[1][1]:
            return f"it had {counts[0][1]} {unit}, it has {counts[1][1]}"
    if "digest" in then and "digest" in now:
        return "it has other content"
    old, new = (re.split(r", (?=modified |etag )", version) for version in (then, now))
    if len(old) == len(new):
        differing = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
        then, now = differing[0] if differing else (then, now)
    return f"it was {then}, it is {now}"


def _few(sentences: list[str]) -> list[str]:
    left = len(sentences) - MOST_NAMED
    return sentences if left <= 0 else [*sentences[:MOST_NAMED], f"and so on: {left} more of the inputs"]


# --- steps ------------------------------------------------------------------------------------------------------------


def _step_changes(then: Sequence[Any], now: Sequence[Any], named: set[str]) -> Iterator[str]:
    """Yield how steps differ: those that are equal are laid side by side, then those that are of one kind."""
    equal = difflib.SequenceMatcher(None, [*map(_canonical, then)], [*map(_canonical, now)], autojunk=False)
    for kind, i1, i2, j1, j2 in equal.get_opcodes():
        if kind != "equal":
            yield from _block_changes(then[i1:i2], now[j1:j2], named)


def _block_changes(then: Sequence[Any], now: Sequence[Any], named: set[str]) -> Iterator[str]:
    old, new = ([step["step"] for step in steps] for steps in (then, now))
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for before, after in zip(then[i1:i2], now[j1:j2], strict=True):
                yield from _one_step_changes(before, after, named)
            continue
        yield from (f"a step {_title(step)!r} was removed" for step in then[i1:i2])
        yield from (f"a step {_title(step)!r} was added" for step in now[j1:j2])


def _title(step: Mapping[str, Any]) -> str:
    if "predicate" in step:
        return f"{step['step']} {_expression_text(step['predicate'])}"
    if "columns" in step and isinstance(step["columns"], Mapping):
        texts = [_expression_text(each) for each in step["columns"].values()]
        return f"{step['step']} {_shortened(', '.join(texts))}"
    if "call" in step:
        return f"{step['step']} {step['call']['function']}"
    values = [str(value) for value in step.get("options", {}).values() if value not in (None, False)]
    return " ".join([step["step"], *values])


def _one_step_changes(then: Mapping[str, Any], now: Mapping[str, Any], named: set[str]) -> Iterator[str]:
    step = now["step"]
    if "branches" in now:
        old, new = then["branches"], now["branches"]
        if len(old) != len(new):
            yield f"{step} had {_counted(len(old), 'branch', 'branches')} and has {len(new)}"
        for before, after in zip(old, new, strict=False):
            yield from _step_changes(before, after, named)
    if isinstance(now.get("columns"), Mapping) and isinstance(then.get("columns"), Mapping):
        yield from _column_changes(then["columns"], now["columns"], named)
    if "predicate" in now and "predicate" in then:
        yield from _expression_changes(f"the condition of {step}", then["predicate"], now["predicate"])
    if "call" in now and "call" in then:
        yield from _call_changes(f"{step}: ", then["call"], now["call"])
    yield from _option_changes(f"{step}: ", then.get("options", {}), now.get("options", {}))


def _column_changes(then: Mapping[str, Any], now: Mapping[str, Any], named: set[str]) -> Iterator[str]:
    for name in now:
        if name not in then and name not in named:
            yield f"column {name!r} was added in a select"
        elif name in then and then[name] != now[name]:
            yield from _expression_changes(f"column {name!r}", then[name], now[name])
    yield from (f"column {name!r} was removed in a select" for name in then if name not in now and name not in named)


def _expression_changes(what: str, then: Any, now: Any) -> Iterator[str]:
    if then == now:
        return
    old, new = ([] if isinstance(each, str) else each.get("calls", []) for each in (then, now))
    found: list[str] = []
    if len(old) == len(new):
        for before, after in zip(old, new, strict=True):
            found += _call_changes(f"{what}: ", before, after)
    before, after = _expression_text(then), _expression_text(now)
    if before != after:
        found.append(f"{what} was {before} and is {after}")
    elif not found and not isinstance(then, str) and not isinstance(now, str):
        pairs = zip(then.get("constants", []), now.get("constants", []), strict=False)
        found += [f"{what}: the constant {_shown(a)} is {_shown(b)}" for a, b in pairs if a != b]
    yield from found or [f"{what} is computed in another way"]


def _call_changes(where: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    name = now["function"]
    if then["function"] != name:
        yield f"{where}function {then['function']!r} was called, and {name!r} is"
        return
    yield from _option_changes(where, then.get("options", {}), now.get("options", {}), of=name)
    yield from _option_changes(where, then.get("arguments", {}), now.get("arguments", {}), of=name)
    if then.get("code") != now.get("code"):
        yield f"{where}the code of function {name!r} was changed, or something that it uses"


def _captured_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield which functions of otherwise equal steps use other values, where fingerprints have those by themselves."""
    if _canonical(then["steps"]) != _canonical(now["steps"]):
        return
    pairs = zip_longest(then.get("captured", ()), now.get("captured", ()))
    changed = [(after or before)[0] for before, after in pairs if before != after]
    for name in filter(None, changed):
        yield f"the code of function {name!r} was changed, or something that it uses"
    if changed and not any(changed):
        yield "something that a function uses was changed"


def _option_changes(where: str, then: Mapping[str, Any], now: Mapping[str, Any], of: str = "") -> Iterator[str]:
    for option in dict.fromkeys((*then, *now)):
        before, after = then.get(option), now.get(option)
        if before == after:
            continue
        words = _WORDS.get(option, option)
        what = f"{where}the {words} of {of}" if of else f"{where}{words}"
        if option == "code":
            yield f"{where}its code was changed"
        elif option not in now or after is None:
            yield f"{what} was {_shown(before)} and is not given"
        elif option not in then or before is None:
            yield f"{what} was not given and is {_shown(after)}"
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _option_changes(f"{what}: ", before, after)
        else:
            yield f"{what} was {_shown(before)} and is {_shown(after)}"


def _expression_text(expression: Any) -> str:
    return expression if isinstance(expression, str) else str(expression["text"])


def _shown(value: Any) -> str:
    return _shortened(repr(value))


def _shortened(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


# --- schema -----------------------------------------------------------------------------------------------------------


def _schema_changes(then: Mapping[str, str] | None, now: Mapping[str, str] | None) -> Iterator[str]:
    if then is None or now is None:
        return
    for name in now:
        if name not in then:
            yield f"column {name!r} is new"
        elif then[name] != now[name]:
            yield f"column {name!r} was {then[name]} and is {now[name]}"
    yield from (f"column {name!r} is gone" for name in then if name not in now)


def _order_changes(then: Mapping[str, str] | None, now: Mapping[str, str] | None) -> Iterator[str]:
    """Yield how the columns that are there before and after are in another order, which files show."""
    old, new = ([name for name in a or () if name in (b or ())] for a, b in ((then, now), (now, then)))
    if old != new:
        orders = [_shortened(", ".join(each)) for each in (old, new)]
        yield f"the columns were in the order {orders[0]} and are in the order {orders[1]}"


def _new_and_gone(then: Mapping[str, str] | None, now: Mapping[str, str] | None) -> set[str]:
    return set() if then is None or now is None else set(then) ^ set(now)


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
