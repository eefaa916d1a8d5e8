"""Calls that one function can answer become one call, wherever the rows are still the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.ai.decisions.answer_columns import PROBABILITIES
from penstock.expr.column import col
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import Builtin, JoinedCall, Target, UdfSpec
from penstock.plan.nodes import Filter, Plan, UdfProject
from penstock.plan.optimizer import optimize
from penstock.plan.rules.join_calls import join_calls
from tests.plan.sources import a, b, node, scan, select


@dataclass(frozen=True)
class Numbers:
    """Gives a list with a number for each question."""

    numbers: tuple[int, ...]
    topic: str = ""

    def spec(self) -> UdfSpec:
        return UdfSpec("numbers", Target(print), PROBABILITIES, builtin=Builtin(joins=self))

    def joined(self, spec: UdfSpec, other: UdfSpec) -> JoinedCall | None:
        more = other.builtin.joins
        if not isinstance(more, Numbers) or more.topic != self.topic:
            return None
        whole = replace(self, numbers=self.numbers + more.numbers)
        return JoinedCall(whole.spec(), tuple(range(len(self.numbers), len(whole.numbers))))


def asked(child: Plan, number: int, column: str, *keep: str, of: str = "a", topic: str = "") -> UdfProject:
    return UdfProject(child, UdfCall(Numbers((number,), topic).spec(), (node(col(of)),)), column, keep or None)


def calls_of(plan: Plan) -> list[tuple[int, ...]]:
    """Return what the calls of a plan ask, from the last one to the first."""
    own = [plan.call.udf.builtin.joins.numbers] if isinstance(plan, UdfProject) else []  # type: ignore[union-attr]
    return [*own, *(each for child in plan.children for each in calls_of(child))]


def test_two_calls_become_one() -> None:
    plan = asked(asked(scan("a", "b"), 1, "c"), 2, "d")
    found = join_calls(plan)
    assert calls_of(found) == [(1, 2)]
    assert found.schema == plan.schema
    below = found.children[0]
    assert [expr.name for expr in below.exprs] == ["a", "b", "c", "__udf_0"]  # type: ignore[attr-defined]


def test_many_calls_with_other_work_between_become_one() -> None:
    plan: Plan = scan("a", "b")
    for number in range(4):
        plan = asked(plan, number, f"c{number}")
        plan = select(plan, *(name for name in plan.schema.names if name != "b"), (b + 1).alias("b"))  # type: ignore[union-attr]
    plan = Filter(plan, node(col("c1")[0] > 2))
    found = optimize(plan)
    assert sorted(calls_of(found)[0]) == [0, 1, 2, 3]
    assert len(calls_of(found)) == 1
    assert found.schema == plan.schema


def test_another_argument_or_function_is_a_call_of_its_own() -> None:
    lower = asked(scan("a", "b"), 1, "c")
    for plan in (asked(lower, 2, "d", of="b"), asked(lower, 2, "d", topic="other")):
        assert join_calls(plan) is plan


def test_an_argument_that_changes_in_between_is_asked_again() -> None:
    plan = asked(select(asked(scan("a", "b"), 1, "c"), (a + 1).alias("a"), col("c")), 2, "d")
    assert join_calls(plan) is plan


def test_a_call_that_drops_its_argument_still_joins() -> None:
    plan = asked(asked(scan("a", "b"), 1, "c"), 2, "d", "c")
    found = join_calls(plan)
    assert calls_of(found) == [(1, 2)]
    assert found.schema == plan.schema
