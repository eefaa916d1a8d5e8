"""The optimizer: a tuple of rules, applied until none of them changes the plan.

A rule is a pure function from a node to its replacement. It returns the same object if it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.plan.nodes import Plan, fold_plan
from penstock.plan.rules.aggregate_files import aggregate_files
from penstock.plan.rules.choose_rows_before_calls import choose_rows_before_calls
from penstock.plan.rules.expand_cascades import expand_cascades
from penstock.plan.rules.fuse_decode_resize import fuse_decode_resize
from penstock.plan.rules.join_calls import join_calls
from penstock.plan.rules.merge_filters import merge_filters
from penstock.plan.rules.merge_projects import merge_projects
from penstock.plan.rules.pushdown_filter import pushdown_filter
from penstock.plan.rules.pushdown_limit import pushdown_limit
from penstock.plan.rules.pushdown_projection import pushdown_projection
from penstock.plan.rules.reuse_udf_results import reuse_udf_results
from penstock.plan.rules.split_udf_calls import split_udf_calls

Rule = Callable[[Plan], Plan]

REQUIRED: tuple[Rule, ...] = (split_udf_calls,)
"""The rules that lowering requires, besides expand_cascades."""

RULES: tuple[Rule, ...] = (
    split_udf_calls,
    merge_filters,
    pushdown_projection,
    reuse_udf_results,  # after pushdown_projection, which drops unused calls
    join_calls,  # before pushdown_filter, which may move a filter between calls that the user wrote side by side
    pushdown_filter,
    pushdown_limit,
    choose_rows_before_calls,
    merge_projects,
    fuse_decode_resize,  # after pushdown_projection, which drops an unused full image
)

LOCAL_RULES: tuple[Rule, ...] = (*RULES, aggregate_files)
"""The rules for a query on one machine: a cluster reads files on all its machines."""

MAX_PASSES = 50  # bounds rules that oscillate; a pass without a change ends the loop much earlier


def optimize(plan: Plan, rules: Sequence[Rule] = RULES) -> Plan:
    """Return a plan that gives the same rows with less work.

    A cascade is expanded once no rule applies: filters have moved below it by then.
    """
    for _ in range(MAX_PASSES):
        before = plan
        for rule in rules:
            plan = apply_rule(plan, rule)
        if plan is before:
            plan = apply_rule(plan, expand_cascades)
        if plan is before:
            break
    return plan


def apply_rule(plan: Plan, rule: Rule) -> Plan:
    """Apply a rule to every node, parents first, so that one pass moves a node all the way down."""

    def changed(node: Plan) -> Plan:
        for _ in range(MAX_PASSES):
            before, node = node, rule(node)
            if node is before:
                break
        return node

    def rebuilt(node: Plan, children: list[Plan]) -> Plan:
        is_new = any(new is not old for new, old in zip(children, node.children, strict=True))
        return node.with_children(tuple(children)) if is_new else node

    return fold_plan(plan, changed, rebuilt)
