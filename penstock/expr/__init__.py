"""Expressions: nodes, types, evaluation. Kernels are loaded when the first one is used; ``Series`` gets its methods."""

import penstock.expr.series_methods  # noqa: F401
