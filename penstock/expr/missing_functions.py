"""Functions of other engines that Penstock leaves to SQL or Python, and how to compute each of them."""

from __future__ import annotations

_PYTHON = "write it as a @ps.func"
_ARITHMETIC = "use the operators and sin(), cos(), tan(), sqrt(), as in 1 / column.sin()"
_COLUMNS = "use least(...), greatest(...), to_list(...).list_mean() or to_list(...).list_sum()"
_DATES = "use from_unix_epoch, strftime, cast, total_days, or the function of the part itself, such as year(column)"
_ZONES = "use convert_time_zone and replace_time_zone; timestamps without a timezone are in UTC"
_ICEBERG = "write_iceberg() partitions by the transforms of its table; use trunc(), substr() or hash(column) % n"
_CAST = 'use cast("int64") and the like'
_SAME_IN_DUCKDB = (
    "ascii chr split_part translate last_day factorial list_append list_bool_and list_bool_or bin make_date "
    "make_timestamp jaro_similarity jaro_winkler_similarity json_array_length left lpad right rpad"
)
_DUCKDB = {name: name for name in _SAME_IN_DUCKDB.split()} | {
    "damerau_levenshtein_distance": "damerau_levenshtein",
    "find": "instr",
    "hamming_distance_str": "hamming",
    "json_object_keys": "json_keys",
    "levenshtein_distance": "levenshtein",
    "list_value_counts": "list_histogram",
    "months_between": "datediff",
    "seq": "range",
    "space": "repeat",
}
_WAYS = {
    _PYTHON: "great_circle_distance hamming_distance run_process simhash soundex compress decompress try_compress "
    "try_decompress jq chunk to_snake_case to_kebab_case to_camel_case to_title_case to_upper_snake_case "
    "to_upper_kebab_case to_upper_camel_case parse_url pearson_correlation jaccard_similarity conv "
    "extract_minute_uuid7 extract_hour_uuid7 extract_day_uuid7 extract_month_uuid7",
    "add or subtract a datetime.timedelta": "date_add date_sub dateadd next_day",
    "use ps.sql, as in select a + interval 1 month from df": "add_months interval make_timestamp_ltz",
    "use split(delimiter)[:count].list_join(delimiter)": "substring_index",
    "use the operators of Python, as in a & b": "bitwise_and bitwise_or bitwise_xor pmod",
    "use ~column.is_nan()": "not_nan",
    "use when(divisor != 0, dividend / divisor)": "try_divide",
    _ARITHMETIC: "hypot csc sec cot",
    _ICEBERG: "partition_iceberg_bucket partition_iceberg_truncate partition_years partition_months partition_days "
    "partition_hours",
    _DATES: "date_diff datediff timestamp_seconds timestamp_millis timestamp_micros from_unixtime date_from_unix_date "
    "unix_date day_of_month dayofmonth dayofyear weekofyear date_format datepart",
    _ZONES: "current_timezone from_utc_timestamp to_utc_timestamp convert_timezone",
    _COLUMNS: "columns_avg columns_mean columns_sum columns_min columns_max",
    "use json_extract() for each field": "json_tuple",
    "use decode_image(), and image_width() and the like of its images": "decode_image_file image_file_metadata",
    "use lit(math.e) or lit(math.pi)": "e pi",
    "UUIDs are text: use DataType.string()": "as_uuid",
    _CAST: "as_int8 as_int16 as_int32 as_int64 as_uint8 as_uint16 as_uint32 as_uint64 as_float16 as_float32 as_float64 "
    "as_bool as_string as_binary as_date as_file as_null as_python as_time as_timestamp as_duration as_decimal128 "
    "as_fixed_size_binary as_list as_fixed_size_list as_struct as_map as_embedding as_tensor as_image as_interval",
    "Penstock has no such type; use a struct of its parts": "as_union as_sparse_tensor as_extension",
    "write the method on the column itself, as in ps.col(name).upper()": "str dt arr float list map image",
}
INSTEAD = {name: way for way, names in _WAYS.items() for name in names.split()} | {
    name: f'use ps.sql_expr("{function}(a)"), a function of DuckDB' for name, function in _DUCKDB.items()
}


def way_around(name: str) -> str:
    """Return how to compute a function that Penstock does not have, as the end of a message; empty if unknown."""
    return f" {INSTEAD[name][0].upper()}{INSTEAD[name][1:]}." if name in INSTEAD else ""
