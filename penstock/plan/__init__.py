"""Plans as frozen data: what the user asked for, what runs, and the way from one to the other.

nodes             the logical plan, checked when it is built
                      relations, similarity   operations on whole tables, as data -> pair_relations
                      cascade_relations, cascade   ``ask`` with a cheap judge, as several nodes
                      unknown_columns         checks when ``map_batches`` hides the columns
optimizer         RULES, in order -> rules/
                      filters, substitution, branches, expression_cost, relation_columns   what several rules need
                      earlier_calls           results of calls further down
                      duckdb_text             expressions as SQL, where DuckDB computes the same values
lower             the plan -> stages
stages            the physical plan: work, inbox policies, resources -> stage_names
number_rows       stages whose rows carry their number, for the errors of failed rows
cache_keys        stages whose functions have the keys of their cached results
explain           both plans as text
identity/         fingerprints of plans and functions, for jobs and caches

May import ``expr``, ``types``, ``storage`` and ``cache``, never a module that reads files, runs or decodes.

Decisions
---------
- ``map_batches`` may return any columns, so the schema of a plan above it is None. What needs the schema stays in the
  node, and the worker resolves it on its first batch; a relation becomes a ``DeferredRelation``. ``df.schema`` runs one
  row. A node remembers the user's line, for errors about columns that are found missing later.
- ``lower`` marks stages as ordered from the end backwards: a result for the user keeps input order, and a limit or a
  row number needs order upstream. Counts, and writes of plans with async calls, need none.
- The driver does not know which rows a filter keeps. So a failed row finds its number in the input in a column of
  integers that reads add and every stage keeps up to the last function that needs it: 8 bytes a row.
- A filter reaches a source twice: whole, as an Arrow expression, and as plain comparisons (``Condition``).
"""
