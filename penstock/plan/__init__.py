"""Plans as frozen data: what the user asked for, what runs, and the way from one to the other.

nodes             the logical plan, checked when it is built
                      relations, similarity   operations on whole tables, as data -> pair_relations
                      unknown_columns         checks when ``map_batches`` hides the columns
optimizer         RULES, in order -> rules/
                      filters, substitution, branches, expression_cost, relation_columns   what several rules need
                      duckdb_text             expressions as SQL, where DuckDB computes the same values
lower             the plan -> stages
stages            the physical plan: work, inbox policies, resources -> stage_names
number_rows       stages whose rows carry their number, for the errors of failed rows
cache_keys        stages whose functions have the keys of their cached results
explain, diagram  both plans as text
identity/         fingerprints of plans and functions, for jobs and caches

May import ``expr``, ``types``, ``storage`` and ``cache``, never a module that reads files, runs or decodes.
"""
