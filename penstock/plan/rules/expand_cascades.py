"""Compute ``ask`` with a cheap judge by several calls."""

from __future__ import annotations

from penstock.plan.cascade import Cascade
from penstock.plan.nodes import Plan, UdfProject


def expand_cascades(plan: Plan) -> Plan:
    """Replace an ``ask`` with a cheap judge by calls of the model and of the judge.

    UdfProject(x, ask(t) as b)  ->  Project(Calibrate(SizeSample(DrawSample(x))), [..., if_else(..., model(t)) as b])

    It comes after all other rules: what stands below is held until the thresholds are known.
    """
    match plan:
        case UdfProject() if isinstance(cascade := plan.call.udf.builtin.cascade, Cascade):
            return cascade.expanded(plan)
        case _:
            return plan
