"""Expressions: nodes, types, evaluation. The kernels of the operators exist wherever expressions do."""

import penstock.expr.operators  # noqa: F401
