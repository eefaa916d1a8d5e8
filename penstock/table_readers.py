"""Make a DataFrame from tables: databases, Lance, Delta Lake, Iceberg, Hugging Face, WebDataset, NumPy, torch, Ray.

Each store is loaded when it is first read, which keeps ``import penstock`` quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.dataframe import DataFrame
from penstock.plan.nodes import Scan
from penstock.udf.options import refusing_unknown

if TYPE_CHECKING:
    import os

    from penstock.io.files import Paths


@refusing_unknown("read_sql")
def read_sql(
    sql: str,
    conn: str | Callable[[], Any],
    *,
    partition_col: str | None = None,
    num_partitions: int | None = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    disable_pushdowns_to_sql: bool = False,
) -> DataFrame:
    """Read the result of a SQL query, streamed.

    ``conn`` is a URL, such as ``postgresql://user@host/database`` or ``sqlite:///file.db``, or a function that returns a
    connection of SQLAlchemy or of an ADBC driver. Credentials in it are never shown. PostgreSQL and SQLite are read
    through ADBC, other databases through SQLAlchemy. Columns, filters and limits become part of the query, unless
    ``disable_pushdowns_to_sql``. With ``partition_col``, numbers, dates or timestamps, ``num_partitions`` ranges of it
    are read at once, each by a query of its own. ``schema`` overrides the types found.

    >>> path = getfixture("tmp_path") / "words.db"
    >>> url = f"sqlite:///{path}"
    >>> _ = ps.from_pydict({"id": [1, 2], "word": ["to", "be"]}).write_sql("words", url)
    >>> ps.read_sql("SELECT * FROM words WHERE id > 1", url).to_pydict()
    {'id': [2], 'word': ['be']}
    """
    from penstock.io.sql import sql_source

    source = sql_source(
        sql, conn, partition_col=partition_col, num_partitions=num_partitions, schema=schema,
        infer_schema=infer_schema, disable_pushdowns_to_sql=disable_pushdowns_to_sql,
    )  # fmt: skip
    return DataFrame(Scan(source))
