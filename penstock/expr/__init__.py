"""Expressions: frozen nodes, the types they have, and their evaluation a batch at a time.

nodes, udf          the nodes; user functions as data
column              ``Expression``: the shell that users hold; ``text`` prints it
registry, signatures, kinds, resolve    functions by name with type rules; types when the plan is built
evaluate            compile a select list once, run it on every batch
operators, conditions, casting, access, aggregates    the kernels of the core
arrays              helpers of kernels
series_methods      the same methods on ``Series``, computed at once
instead             functions of other engines, and what to use instead

Kernels are loaded when the first one is used. May import ``types`` and the modules at the top.
"""

import penstock.expr.series_methods  # noqa: F401
