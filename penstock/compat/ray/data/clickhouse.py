"""ClickHouse with the parameters of Ray Data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow.types as pt

from penstock.compat.ray.data.options import check_placement
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.io.tables.clickhouse import clickhouse_source
from penstock.plan.nodes import Scan
from penstock.types import DataType, Schema


class SinkMode(IntEnum):
    """The modes of ``write_clickhouse``."""

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3


@dataclass
class ClickHouseTableSettings:
    """Clauses of ``CREATE TABLE``."""

    engine: str = "MergeTree()"
    order_by: str | None = None
    partition_by: str | None = None
    primary_key: str | None = None
    settings: str | None = None


def read_clickhouse(
    *,
    table: str,
    dsn: str,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    order_by: tuple[Sequence[str], bool] | None = None,
    client_settings: Mapping[str, Any] | None = None,
    client_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """Read a table in the types that the server gives to Arrow: a DateTime is a number of seconds, an Enum a number."""
    check_placement("read_clickhouse", options)
    keys, is_descending = order_by or ((), False)
    order = f"({', '.join(keys)}){' DESC' if is_descending else ''}" if keys else None
    source = clickhouse_source(
        table, dsn, filter=filter, order_by=order, client_settings=client_settings, client_kwargs=client_kwargs,
        keeps_types=True,
    )  # fmt: skip
    frame = DataFrame(Scan(source))
    return frame.select(*columns) if columns else frame


def write_clickhouse(
    frame: DataFrame,
    table: str,
    dsn: str,
    *,
    mode: SinkMode = SinkMode.CREATE,
    schema: Any = None,
    client_settings: Mapping[str, Any] | None = None,
    client_kwargs: Mapping[str, Any] | None = None,
    table_settings: ClickHouseTableSettings | None = None,
    max_insert_block_rows: int | None = None,
    **options: Any,
) -> None:
    """Write a table in the types of Ray Data, without nulls: the server replaces them by 0 or an empty text.

    ``max_insert_block_rows`` changes no result and is ignored.
    """
    check_placement("write_clickhouse", options)
    rows = frame if schema is None else frame.select(*(col(each.name).cast(DataType(each.type)) for each in schema))
    made = table_settings or ClickHouseTableSettings()
    DataFrame.write_clickhouse(
        rows, table, dsn, mode=SinkMode(mode).name.lower(), column_types=_types(rows.schema),  # type: ignore[arg-type]
        engine=made.engine, order_by=made.order_by, partition_by=made.partition_by, primary_key=made.primary_key,
        table_settings=made.settings, client_settings=client_settings, client_kwargs=client_kwargs,
    )  # fmt: skip


def _types(schema: Schema) -> dict[str, str]:
    return {each.name: _type(each.type) for each in schema.to_arrow()}


def _type(dtype: Any) -> str:
    if pt.is_decimal(dtype):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    if pt.is_integer(dtype):
        return str(dtype).replace("uint", "UInt").replace("int", "Int")
    if pt.is_floating(dtype):
        return "Float64" if pt.is_float64(dtype) else "Float32"
    return "UInt8" if pt.is_boolean(dtype) else "DateTime64(3)" if pt.is_timestamp(dtype) else "String"
