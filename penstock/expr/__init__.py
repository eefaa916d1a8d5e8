"""Expressions: nodes, types, evaluation. Kernels are loaded when the first one is used; ``Series`` gets its methods."""

import penstock.expr.series_methods  # noqa: F401
from penstock.expr.registry import load_later

load_later("penstock.expr.operators")
load_later("penstock.functions")
