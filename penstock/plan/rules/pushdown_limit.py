"""Limit rows as early as possible."""

from __future__ import annotations

from dataclasses import replace

from penstock.plan import nodes
from penstock.plan.relations import Sort


def pushdown_limit(plan: nodes.Plan) -> nodes.Plan:
    """Move a limit below nodes that keep the number of rows, towards the scan and into it.

    Limit(Project(x), 5)             ->  Project(Limit(x, 5))
    Limit(Limit(x, 9), 5, offset=2)  ->  Limit(x, 5, offset=2)
    Limit(Concat(x, y), 5)           ->  Limit(Concat(Limit(x, 5), Limit(y, 5)), 5)
    Limit(Sort(x), 5)                ->  Sort(x, first 5)
    Limit(Scan(s), 5)                ->  Scan(s, limit=5)
    Limit(Scan(s), 5, offset=2)      ->  Limit(Scan(s, limit=7), 5, offset=2)
    """
    match plan:
        case nodes.Limit(child, None, 0):
            return child
        case nodes.Limit(nodes.Limit(child, inner, skipped), num_rows, offset):
            rest = None if inner is None else max(inner - offset, 0)
            return nodes.Limit(child, _fewest(rest, num_rows), skipped + offset)
        case nodes.Limit(
            nodes.Project() | nodes.UdfProject() | nodes.IntoBatches() | nodes.Repartition() as work, num_rows, offset
        ) if work.is_row_preserving:
            return work.with_child(nodes.Limit(work.child, num_rows, offset))
        case nodes.Limit(nodes.MonotonicId() as work, num_rows, 0):
            return work.with_child(nodes.Limit(work.child, num_rows))
        case nodes.Limit(nodes.Scan() as scan, int(num_rows), 0):
            return replace(scan, limit=_fewest(scan.limit, num_rows))
        case nodes.Limit(nodes.Relate(inputs, Sort() as sort), int(num_rows), 0):
            return nodes.Relate(inputs, replace(sort, num_rows=_fewest(sort.num_rows, num_rows)))
        # Below, the limit stays and its inputs get one too.
        case nodes.Limit(
            nodes.Scan()
            | nodes.Concat()
            | nodes.Explode()
            | nodes.Unpivot()
            | nodes.MonotonicId()
            | nodes.Relate(relation=Sort()) as work,
            int(num_rows),
            offset,
        ):
            limited = _with_at_most(work, num_rows + offset)
            return plan if limited is work else plan.with_child(limited)
        case _:
            return plan


def _with_at_most(node: nodes.Plan, num_rows: int) -> nodes.Plan:
    """Limit each input of a node to the rows that ``num_rows`` rows of its output can need.

    An explode or unpivot gives at least one row for each input row.
    """
    if isinstance(node, nodes.Relate):
        assert isinstance(node.relation, Sort)
        fewest = _fewest(node.relation.num_rows, num_rows)
        return (
            node
            if fewest == node.relation.num_rows
            else replace(node, relation=replace(node.relation, num_rows=fewest))
        )
    if isinstance(node, nodes.Scan):
        return node if node.limit is not None and node.limit <= num_rows else replace(node, limit=num_rows)
    children = tuple(c if _has_at_most(c, num_rows) else nodes.Limit(c, num_rows) for c in node.children)
    return (
        node
        if all(new is old for new, old in zip(children, node.children, strict=True))
        else node.with_children(children)
    )


def _has_at_most(plan: nodes.Plan, num_rows: int) -> bool:
    """Return True if the plan is known to give at most ``num_rows`` rows."""
    match plan:
        case nodes.Limit(child, limit):
            return (limit is not None and limit <= num_rows) or _has_at_most(child, num_rows)
        case nodes.Scan(limit=limit) | nodes.Relate(relation=Sort(num_rows=limit)):
            return limit is not None and limit <= num_rows
        case nodes.Filter(child):
            return _has_at_most(child, num_rows)
        case nodes.Project() | nodes.UdfProject() | nodes.MonotonicId() | nodes.IntoBatches() | nodes.Repartition() if (
            plan.is_row_preserving
        ):
            return _has_at_most(plan.child, num_rows)
        case _:
            return False


def _fewest(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)
