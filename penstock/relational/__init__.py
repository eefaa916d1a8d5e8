"""Operations on whole tables (``plan.relations``): sort, distinct, aggregate, join, window and SQL.

DuckDB does them, over streams of batches that may be larger than memory. A sort keeps its rows in Arrow, and only the
keys go through DuckDB or NumPy.

handler        RelationHandler: feeds a relation and hands on its rows as they come
                   sql, parser             the relation as SQL
                   temporary_duckdb, spill  a DuckDB with a share of the memory; the rest goes to temporary files
                   stream                  pushed batches -> DuckDB -> pulled batches, both bounded in bytes
                   arrow                   types that DuckDB lacks
query_makers   the query of a relation whose columns are known only while it runs -> typed_input, sql_result
external_sort  sorted runs, merged block by block -> number_order
groups         rows of one key become one row with a list
partition      parts of a relation that Ray computes one by one -> two_steps: aggregate before rows move
scalar         SQL expressions over one batch

May import ``plan``, ``expr``, ``types``; it knows no pool.

Decisions
---------
- DuckDB takes the right side of a join first and then streams the left one, so the right one has the hash table.
- ``map_groups`` makes each group one row with a list of its rows, without a copy. So no stage can split a group, and
  retries, failed rows, caching and dead workers are handled as for row functions.
- ``TypedInput`` holds batches until each column has had a value, because null is no type.
"""
