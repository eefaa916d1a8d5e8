"""Functions of other engines that Penstock leaves to SQL or Python, and how to compute each of them."""

from __future__ import annotations

_SQL = 'use ps.sql_expr("{}"), a function of DuckDB'
_PYTHON = "write it as a @ps.func"
_UUID = 'convert the UUID with .cast("string") and read its first 12 hexadecimal digits, which count milliseconds'
_ICEBERG = "write_iceberg() partitions by the transforms of its table; use {}"

_WAYS = {
    _PYTHON: "great_circle_distance hamming_distance run_process simhash soundex compress decompress try_compress "
    "try_decompress jq chunk to_snake_case to_kebab_case to_camel_case to_title_case to_upper_snake_case "
    "to_upper_kebab_case to_upper_camel_case",
    f"{_PYTHON}, with urllib.parse.urlsplit": "parse_url",
    f"{_PYTHON}, with numpy.corrcoef": "pearson_correlation",
    f"{_PYTHON}, with numpy": "jaccard_similarity",
    _SQL.format("levenshtein(a, b)"): "levenshtein_distance",
    _SQL.format("damerau_levenshtein(a, b)"): "damerau_levenshtein_distance",
    _SQL.format("hamming(a, b)"): "hamming_distance_str",
    _SQL.format("jaro_similarity(a, b)"): "jaro_similarity",
    _SQL.format("jaro_winkler_similarity(a, b)"): "jaro_winkler_similarity",
    _SQL.format("ascii(a)"): "ascii",
    _SQL.format("chr(a)"): "chr",
    _SQL.format("split_part(a, ',', 2)"): "split_part",
    _SQL.format("translate(a, 'from', 'to')"): "translate",
    _SQL.format("last_day(a)"): "last_day",
    _SQL.format("factorial(a)"): "factorial",
    _SQL.format("list_append(a, b)"): "list_append",
    _SQL.format("list_histogram(a)"): "list_value_counts",
    _SQL.format("list_bool_and(a)"): "list_bool_and",
    _SQL.format("list_bool_or(a)"): "list_bool_or",
    _SQL.format("range(a)"): "seq",
    _SQL.format("json_array_length(a)"): "json_array_length",
    _SQL.format("json_keys(a)"): "json_object_keys",
    "use ps.sql, as in select a + interval 1 month from df": "add_months interval",
    "add or subtract a datetime.timedelta": "date_add date_sub dateadd",
    "use (end - start).total_days()": "date_diff datediff",
    "use split(delimiter)[:count].list_join(delimiter)": "substring_index",
    "use the operators of Python, as in a & b": "bitwise_and bitwise_or bitwise_xor",
    "use ~column.is_nan()": "not_nan",
    "use when(divisor != 0, dividend / divisor)": "try_divide",
    "use (a ** 2 + b ** 2).sqrt()": "hypot",
    _SQL.format("cbrt(a)"): "cbrt",
    "use column.exp() - 1": "expm1",
    f"{_SQL.format('sinh(a)')}; it has all hyperbolic functions": "sinh cosh tanh arcsinh arccosh arctanh",
    _SQL.format("greatest(a, b)"): "greatest columns_max",
    _SQL.format("least(a, b)"): "least columns_min",
    "use substr(0, n), or substr(-n)": "left right",
    _SQL.format("instr(a, b) - 1"): "find",
    _SQL.format("lpad(a, 5, '0')"): "lpad rpad",
    _SQL.format("repeat(a, 2)"): "repeat",
    "use 1 / column.sin()": "csc",
    "use 1 / column.cos()": "sec",
    "use 1 / column.tan()": "cot",
    f"{_PYTHON}, with int(digits, base)": "conv",
    _ICEBERG.format("hash(column) % n for buckets of your own"): "partition_iceberg_bucket",
    _ICEBERG.format("substr() or a division"): "partition_iceberg_truncate",
    _ICEBERG.format('trunc("day") and the like'): "partition_years partition_months partition_days partition_hours",
    _UUID: "extract_minute_uuid7 extract_hour_uuid7 extract_day_uuid7 extract_month_uuid7",
    _SQL.format("bin(a)"): "bin",
    _SQL.format("repeat(' ', n)"): "space",
    _SQL.format("make_date(year, month, day)"): "make_date",
    _SQL.format("make_timestamp(year, month, day, hour, minute, second)"): "make_timestamp",
    _SQL.format("datediff('month', start, end)"): "months_between",
    "add a timedelta of the days that day_of_week() leaves": "next_day",
    'use from_unix_epoch(column, time_unit), with "s", "ms" or "us"': (
        "timestamp_seconds timestamp_millis timestamp_micros"
    ),
    "use from_unix_epoch(column).strftime(format)": "from_unixtime",
    'use .cast("int32").cast("date")': "date_from_unix_date",
    'use .date().cast("int32")': "unix_date",
    "use day()": "day_of_month dayofmonth",
    "use day_of_year()": "dayofyear",
    "use week_of_year()": "weekofyear",
    "use strftime(column, format)": "date_format",
    "use the function of the part itself, such as year(column)": "datepart",
    "timestamps without a timezone are in UTC here": "current_timezone",
    'cast to a type with the zone, such as .cast("timestamp[us, Asia/Tokyo]"); without a zone a time is in UTC': (
        "convert_time_zone convert_timezone from_utc_timestamp"
    ),
    'use arrow_function("assume_timezone", column, timezone="Asia/Tokyo")': (
        "replace_time_zone to_utc_timestamp make_timestamp_ltz"
    ),
    "use to_list(...).list_mean()": "columns_avg columns_mean",
    "use to_list(...).list_sum()": "columns_sum",
    "use a % b, whose sign is that of b": "pmod",
    "use json_extract() for each field": "json_tuple",
    "use decode_image(), and image_width() and the like of its images": "decode_image_file image_file_metadata",
    "use lit(math.e)": "e",
    "use lit(math.pi)": "pi",
    "UUIDs are text: use DataType.string()": "as_uuid",
    'use cast("int64") and the like': (
        "as_int8 as_int16 as_int32 as_int64 as_uint8 as_uint16 as_uint32 as_uint64 as_float16 as_float32 as_float64 "
        "as_bool as_string as_binary as_date as_file as_null as_python as_time as_timestamp as_duration as_decimal128 "
        "as_fixed_size_binary as_list as_fixed_size_list as_struct as_map as_embedding as_tensor as_image as_interval"
    ),
    "give each type of a union a column of its own": "as_union",
    "use a struct of the values, their places and the shape": "as_sparse_tensor",
    "use the storage type": "as_extension",
    "write the method on the column itself, as in ps.col(name).upper()": "str dt arr",
}
INSTEAD = {name: way for way, names in _WAYS.items() for name in names.split()}


def way_around(name: str) -> str:
    """Return how to compute a function that Penstock does not have, as the end of a message; empty if unknown."""
    return f" {INSTEAD[name][0].upper()}{INSTEAD[name][1:]}." if name in INSTEAD else ""
