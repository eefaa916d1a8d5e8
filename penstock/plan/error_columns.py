"""Carry columns along that identify a row in its errors."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from penstock.expr.nodes import columns_of
from penstock.plan.nodes import Plan, UdfProject
from penstock.types import DataType


def with_error_columns(plan: UdfProject) -> Plan:
    """Return the input of a call. If failed rows are recorded, it also has the columns that its arguments came from.

    UdfProject(UdfProject(x, download(path) as t, keep=[]), decode_image(t) as i, keep=[])
        ->  the inner one with keep=[path], which the outer one drops

    The bytes of a file do not identify the file. Only text and numbers are carried along.
    """
    if plan.keep is None or plan.call.udf.policy.on_error == "raise":
        return plan.child
    return _carrying(plan.child, columns_of(plan.call))


def _carrying(plan: Plan, columns: Set[str]) -> Plan:
    if not isinstance(plan, UdfProject) or plan.keep is None or plan.column not in columns:
        return plan
    child = _carrying(plan.child, columns_of(plan.call))
    if child.schema is None or plan.child.schema is None:
        return plan
    origins = columns_of(plan.call) | (set(child.schema.names) - set(plan.child.schema.names))
    left_out = origins - {plan.column, *plan.keep}
    carried = [field.name for field in child.schema if field.name in left_out and _is_plain(field.dtype)]
    return replace(plan, child=child, keep=(*plan.keep, *carried))


def _is_plain(dtype: DataType) -> bool:
    return dtype.is_string() or dtype.is_numeric()
