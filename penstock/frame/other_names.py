"""The names that users of pandas, Polars, Spark, Daft and Ray Data try on a DataFrame, and what to write here."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import did_you_mean

_BY_HABIT = {
    "with_column(name, expr)": "withColumn add_column insert",
    "with_columns(name=expr)": "withColumns assign hstack",
    "rename({old: new})": "withColumnRenamed withColumnsRenamed with_columns_renamed set_axis",
    "select(...)": "select_columns get loc",
    "select(ps.sql_expr(...))": "selectExpr",
    'select("*", ps.unnest(ps.col(...)))': "unnest",
    "with_column(name, ps.col(name).cast(...))": "astype",
    "with_column(name, ps.col(name).fill_null(...))": "fillna fill_null fill_nan",
    "with_column(name, ps.col(name).is_null())": "isna isnull",
    "where(...)": "query",
    "where(ps.col(name).is_in([...]))": "isin",
    "map(f) for rows, or map_batches(f)": "apply map_rows foreach",
    "map_batches(f)": "map_partitions mapPartitions mapInArrow foreachBatch",
    'map_batches(f, batch_format="pandas")': "mapInPandas",
    "group_by(...)": "groupBy group",
    "group_by(...).count()": "value_counts",
    "count_distinct(...)": "nunique n_unique",
    "list_agg(...)": "agg_list",
    "list_agg_distinct(...)": "agg_set",
    "string_agg(...)": "agg_concat",
    "columns": "column_names",
    "sort(...)": "sort_values orderBy order_by sort_by sortWithinPartitions",
    "sort(..., desc=True).limit(n)": "tail nlargest top_k bottom_k nsmallest",
    "distinct()": "dropDuplicates",
    "drop_null()": "dropna drop_nulls",
    "drop_nan()": "drop_nans",
    "limit(n), offset(m), or where(...) for rows": "iloc slice",
    "take(1)": "first",
    "take(n)": "rows",
    "join(...)": "merge",
    'join(..., how="cross")': "crossJoin",
    'ps.sql("select * from a asof join b using (t)")': "join_asof merge_asof",
    "concat(other)": "unionAll append vstack extend",
    "union_all_by_name(other)": "unionByName",
    "intersect(other)": "intersection",
    "shuffle()": "random_shuffle",
    "monotonically_increasing_id(name)": "with_row_index with_row_count reset_index",
    "repartition(n)": "coalesce",
    "count_rows()": "height size is_empty empty",
    "len(df.columns)": "width",
    "schema": "dtypes dtype types printSchema collect_schema info",
    "collect()": "cache persist compute",
    "to_arrow()": "toArrow to_arrow_refs values to_numpy",
    "to_pandas()": "toPandas",
    "to_pydict()": "to_dict",
    "to_pylist()": "to_dicts to_list",
    "iter_rows()": "iterrows itertuples toLocalIterator",
    "iter_batches(...)": "iter_slices",
    "write_parquet(path)": "to_parquet sink_parquet write save",
    "to_arrow(), and pyarrow.orc.write_table": "write_orc to_orc",
    "write_csv(path)": "to_csv sink_csv",
    "write_json(path)": "to_json sink_ndjson write_ndjson",
    "write_sql(table, conn)": "to_sql write_database",
    "write_deltalake(path)": "write_delta sink_delta",
    'ps.sql("select * from a asof left join b using (item, time)")': "join_asof",
    'ps.sql("select ... from df")': "sql createOrReplaceTempView registerTempTable",
    "explain()": "describe_plan show_graph",
    "stats()": "profile",
}
HABITS = {habit: ours for ours, habits in _BY_HABIT.items() for habit in habits.split()}
UNNEEDED = {
    "lazy": "a DataFrame is lazy already",
    "copy": "no verb changes its DataFrame",
    "clone": "no verb changes it",
}


def attribute_error(name: str, known: Iterable[str], columns: Iterable[str]) -> AttributeError:
    """Return the error for an attribute that a DataFrame does not have.

    >>> str(attribute_error("withColumn", ["with_column"], []))
    "DataFrame has no attribute 'withColumn'. Write df.with_column(name, expr)."
    """
    if name in columns:
        advice = f' For the column write df["{name}"] or ps.col("{name}").'
    elif ours := HABITS.get(name):
        advice = f" Write {ours if ours.startswith(('ps.', 'len(')) else f'df.{ours}'}."
    elif name in UNNEEDED:
        advice = f" Leave it out: {UNNEEDED[name]}."
    elif name == "shape":
        advice = " The number of rows is known after collect(); count_rows() runs the query for it."
    else:
        advice = did_you_mean(name, [each for each in known if not each.startswith("_")])
    # With an object, Python would add a suggestion of its own.
    return AttributeError(f"DataFrame has no attribute {name!r}.{advice}", name=name, obj=None)
