"""Expressions: frozen nodes, the types they have, and their evaluation a batch at a time.

nodes                the nodes
udf                  user functions as data
column               ``Expression``: the shell that users hold
methods              the public functions as methods of ``Expression``
public_functions     the public functions by name
expression_text      expressions as text
templates            texts with the names of columns, as prompts have them
registry             a type rule and a kernel for each function name
kinds, signatures    sets of types; short forms of type rules
resolve              the types of expressions, when the plan is built
evaluate             compile a select list once, run it on every batch
operators, conditions, casting, items    the kernels of the core
arrays               helpers of kernels -> vector_matrix
aggregate_functions  a type rule and a SQL template for each aggregate
series_methods       the same methods on ``Series``, computed at once
missing_functions    functions of other engines, and what to use instead

Kernels are loaded when the first one is used. The room may import ``types`` and the modules at the top.

Decisions
---------
- Expressions are data: ``Call(name, args, options)`` names its function, and ``registry`` finds the type rule and the
  kernel. So plans can be compared, printed and pickled.
- ``evaluate`` compiles a select list once per schema into a ``Program`` of steps. Equal sub-expressions share a step.
"""

import penstock.expr.series_methods  # noqa: F401
