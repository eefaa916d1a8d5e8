"""Blocking verbs on DuckDB: sort, distinct, aggregate, join, window and SQL, over Arrow streams that may exceed memory.

``sql`` writes a relation of the plan as SQL, ``database`` runs it with a share of the query's memory, ``stream`` feeds
it batch by batch, and ``arrow`` converts the types that DuckDB lacks. ``typed_input`` finds the types of an input that
are not known before it runs; ``query_makers`` and ``sql_result`` then make the query. ``external_sort`` keeps the rows
in Arrow, and only their keys go through DuckDB. ``nearest``, ``near_duplicates`` and ``similar_texts`` compare vectors
and texts in NumPy instead.
"""
