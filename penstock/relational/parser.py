"""SQL text to a syntax tree and back, by DuckDB's own parser. A tree is the JSON that DuckDB writes."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.relational.scalar import database

Tree = dict[str, Any]
SELECT = "select "


def parse(text: str, prefix: str = "") -> Tree:
    """Return the query of the SELECT statement ``prefix + text``, or raise an error that points at the token."""
    if not isinstance(text, str):
        raise InvalidArgumentError(f"SQL is text; got {type(text).__name__}")
    (serialized,) = database().cursor().execute("select json_serialize_sql(?)", [prefix + text]).fetchone()
    parsed = json.loads(serialized)
    if parsed["error"]:
        position = int(parsed["position"]) - len(prefix) if "position" in parsed else None
        raise sql_error(text, position, parsed["error_message"].replace("can be serialized to json!", "are possible"))
    if len(parsed["statements"]) != 1:
        raise InvalidArgumentError(f"sql takes one SELECT statement; got {len(parsed['statements'])}")
    query: Tree = parsed["statements"][0]["node"]
    return query


def parse_expression(text: str) -> Tree:
    selected = parse(text, SELECT)["select_list"]
    if len(selected) != 1:
        raise InvalidArgumentError(f"{text!r} has {len(selected)} expressions; give one")
    expression: Tree = selected[0]
    return expression


def render(query: Tree) -> str:
    """Return the SQL text of a query."""
    statement = json.dumps({"error": False, "statements": [{"node": query, "named_param_map": []}]})
    (text,) = database().cursor().execute("select json_deserialize_sql(?)", [statement]).fetchone()
    return str(text)


def constant(expression: Tree) -> Any:
    """Return the value of an expression that reads no column; a number with a point is a float."""
    query = parse("select 1")
    query["select_list"] = [expression]
    value = database().cursor().execute(render(query)).fetchone()[0]
    values = [
        float(each) if isinstance(each, Decimal) else each for each in (value if isinstance(value, list) else [value])
    ]
    return values if isinstance(value, list) else values[0]


@functools.cache
def function_names(kind: str | None = None) -> frozenset[str]:
    """Return the names of DuckDB's functions: of one ``kind``, such as ``aggregate``, or of all kinds."""
    where = "" if kind is None else f" where function_type = '{kind}'"
    found = database().cursor().execute(f"select distinct function_name from duckdb_functions(){where}").fetchall()
    return frozenset(name for (name,) in found)


def walk_tree(tree: Any) -> Iterator[Tree]:
    """Yield all nodes of a tree, parents first."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from walk_tree(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from walk_tree(value)


def rewrite_tree(tree: Any, change: Callable[[Tree], Any]) -> Any:
    """Return a copy of a tree, with ``change`` applied to every node, parents first; None keeps a node."""
    if isinstance(tree, list):
        return [rewrite_tree(value, change) for value in tree]
    if not isinstance(tree, dict):
        return tree
    changed = change(tree)
    if changed is not None:
        return changed
    return {key: rewrite_tree(value, change) for key, value in tree.items()}


def sql_error(text: str, position: int | None, message: str) -> InvalidArgumentError:
    """Return an error with the line of ``text`` and a mark below the byte ``position``."""
    if position is None or position > len(text.encode()):
        return InvalidArgumentError(f"SQL: {message}")
    before = text.encode()[:position].decode(errors="ignore")
    line = text.splitlines()[before.count("\n")] if text else ""
    return InvalidArgumentError(f"SQL: {message}\n  {line}\n  {' ' * len(before.rpartition(chr(10))[2])}^")


def result_schema(
    text: str, tables: dict[str, pa.Table], written: str, functions: Collection[str], timezone: str | None = None
) -> pa.Schema:
    """Return the columns of a query over tables; raise an error that points at what is wrong.

    ``written`` is the SQL of the user, which may differ from ``text``. ``functions`` are other names than DuckDB's
    that the user may have meant.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config={"enable_external_access": False, "errors_as_json": True})
    try:
        set_timezone(connection, timezone)
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(text).fetchall()  # its errors have a position; errors of sql() have none
        relation = connection.sql(text)
        schema: pa.Schema = relation.to_arrow_table().schema
        wide = {name for name, dtype in zip(relation.columns, relation.types, strict=True) if str(dtype) == "HUGEINT"}
    except duckdb.Error as exc:
        raise _binding_error(text, written, str(exc), functions) from None
    finally:
        connection.close()
    # Sums of whole numbers are int64, and times have the zone of the query, which DuckDB may know by another name.
    zoned = {f.name for f in schema if timezone and pa.types.is_timestamp(f.type) and f.type.tz}
    return pa.schema(
        [
            (
                f.name,
                pa.int64() if f.name in wide else pa.timestamp(f.type.unit, timezone) if f.name in zoned else f.type,
            )
            for f in schema
        ]
    )


def set_timezone(connection: Any, timezone: str | None) -> None:
    """Set the time zone in which a connection computes days and hours and returns times; None keeps it.

    DuckDB names an offset of whole hours Etc/GMT, with the opposite sign. It has no other offsets, so these become UTC.
    """
    if timezone is None:
        return
    offset = re.fullmatch(r"([+-])(\d\d):?(\d\d)?", timezone)
    if offset is not None:
        is_whole = offset[3] in (None, "00")
        name = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{int(offset[2])}" if is_whole else "UTC"
    else:
        name = timezone
    connection.execute("set TimeZone = '" + name.replace("'", "''") + "'")


def _binding_error(text: str, written: str, error: str, functions: Collection[str]) -> InvalidArgumentError:
    """Return an error of DuckDB, which is JSON after its class, with a mark below the token in the user's SQL."""
    details = json.loads(error[error.index("{") :]) if "{" in error else {"exception_message": error}
    message, name, position = details["exception_message"].rstrip(), details.get("name", ""), details.get("position")
    if str(details.get("type")).endswith("Function"):
        message = f"there is no function {name!r}.{did_you_mean(name, [*functions, *function_names()])}"
    if position is not None and text != written:
        token = re.match(rb"\w+", text.encode()[int(position) :])
        position = written.encode().find(token[0]) if token else None
    return sql_error(written, None if position in (None, -1) else int(position), message)
