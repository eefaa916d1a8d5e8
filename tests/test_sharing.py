"""Counting the users of a limit."""

from __future__ import annotations

from penstock.ai.remote.limits.sharing import BEAT_S, FORGET_S, LimitUsers


def test_all_that_beat_are_counted_for_what_they_use() -> None:
    users = LimitUsers()
    for member in "abc":
        users.beat(0.0, member, ["x", "y"] if member == "c" else ["x"])
    assert users.beat(BEAT_S, "a", ["x", "y"]) == {"x": 3, "y": 2}
    assert users.beat(2 * BEAT_S, "a", ["y"]) == {"y": 2}
    assert users.beat(2 * BEAT_S, "b", ["x"]) == {"x": 2}


def test_one_that_uses_nothing_has_left() -> None:
    users = LimitUsers()
    users.beat(0.0, "a", ["x"])
    assert users.beat(0.0, "b", ["x"]) == {"x": 2}
    assert users.beat(0.1, "a", []) == {}
    assert users.beat(0.1, "b", ["x"]) == {"x": 1}


def test_one_that_is_silent_is_forgotten_after_some_beats() -> None:
    users = LimitUsers()
    users.beat(0.0, "a", ["x"])
    assert users.beat(2 * BEAT_S, "b", ["x"]) == {"x": 2}
    assert users.beat(FORGET_S, "b", ["x"]) == {"x": 1}
