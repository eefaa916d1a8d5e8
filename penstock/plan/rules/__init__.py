"""The rules of the optimizer, one per file: a pure function from a node to its replacement, or to the same object.

split_udf_calls             every call gets a node of its own; lowering needs it
merge_filters, merge_projects
pushdown_filter             filter early, at best while reading
pushdown_limit              limit early, at best while reading
choose_rows_before_calls    sort, filter and limit before a function is called
pushdown_projection         read and compute only the columns that are used
reuse_udf_results           equal calls are made once
join_calls                  calls that one call can answer become one
fuse_decode_resize          decode images at the size that is used
expand_cascades             a model and a cheap judge answer ``ask``; after all others
aggregate_files             DuckDB reads the files of an aggregate; on one machine only

Their order is in ``plan/optimizer.py``. What several rules need is in ``plan/``, not here.
"""
