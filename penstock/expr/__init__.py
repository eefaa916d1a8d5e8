"""Expressions: nodes, types, evaluation. The kernels of the operators are loaded when the first one is used."""

from penstock.expr.registry import load_later

load_later("penstock.expr.operators")
