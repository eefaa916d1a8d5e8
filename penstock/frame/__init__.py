"""``DataFrame``: a lazy table whose verbs build plan nodes.

dataframe         ``DataFrame``, which lists its verb families side by side
lazy_table        the base of ``DataFrame``: one plan node, how to run it, errors and statistics of the last run
columns           add, remove and rename columns -> projection
rows              keep, drop and regroup rows; Python functions over them
aggregate         combine all rows, or groups -> aggregation
relational        sort, distinct, join, zip and set operations
reshape           samples, shuffles, pivots
similarity        nearest rows, near duplicates
semantic          an answer for each group, the best rows, joins in plain words -> semantic_prompts
results           run the query and return its rows -> cut_batches, torch
write             run the query and write its rows
sql               SQL over DataFrames -> sql_trees, sql_expression: one expression in SQL
option_lines      a line about each option of readers, writers and map_batches
other_names       names of other libraries, and what to write here
read/             make a DataFrame from files, tables or memory
display/          a table as text or HTML

A verb takes about five lines: check the arguments, build a node, return a new DataFrame. The room may import
everything up to ``runners`` and ``functions``.
"""
