"""Random chains of verbs, with functions of every batch format between them, against rows told one by one in Python.

The tables have nulls in their first rows, no rows at all, integers that no float holds, times in a zone, decimals,
lists, and sometimes many columns.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import penstock as ps
from penstock import col
from penstock.functions import date_trunc

TOKYO, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int64(),
        "s": pa.string(),
        "t": pa.timestamp("us", "America/New_York"),
        "d": pa.decimal128(12, 3),
        "l": pa.list_(pa.int64()),
        "f": pa.float64(),
    }
)
MOMENTS = [  # the hours that clocks repeat and skip, and one before 1970
    dt.datetime(2025, 11, 2, 5, 30, tzinfo=dt.UTC),
    dt.datetime(2025, 11, 2, 6, 30, tzinfo=dt.UTC),
    dt.datetime(2025, 3, 9, 7, 30, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC),
]
VALUES: dict[str, list[Any]] = {
    "i": [None, 1, 2, -3, 2**53 + 1],
    "s": [None, "", "a", "b", "ß"],
    "t": [None, *MOMENTS],
    "d": [None, Decimal("1.100"), Decimal("-22.050")],
    "l": [None, [], [1, None], [2**53 + 1]],
    "f": [None, 0.5, -2.0, math.nan],
}
NUM_WIDE = 60

Row = dict[str, Any]


@dataclass
class Chain:
    """A DataFrame and the rows that it means."""

    df: ps.DataFrame
    rows: list[Row]
    names: list[str]
    may_lack_columns: bool = False  # no row has reached a function

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.names)


@st.composite
def tables(draw: st.DrawFn) -> Chain:
    num_rows, num_null = draw(st.sampled_from([0, 1, 5, 9])), draw(st.sampled_from([0, 0, 3, 9]))
    rows: list[Row] = []
    for number in range(num_rows):
        drawn = {name: draw(st.sampled_from(values)) for name, values in VALUES.items()}
        rows.append({"id": number, **(dict.fromkeys(VALUES) if number < num_null else drawn)})
    names, schema = list(SCHEMA.names), SCHEMA
    if draw(st.integers(0, 5)) == 0:
        wide = {f"w{number}": number for number in range(NUM_WIDE)}
        rows, names = [{**row, **wide} for row in rows], [*names, *wide]
        schema = pa.schema([*schema, *((name, pa.int64()) for name in wide)])
    df = ps.from_arrow(pa.Table.from_pylist(rows, schema)).into_batches(draw(st.sampled_from([1, 3, 10])))
    return Chain(df, rows, names)


# --- functions: each keeps the other columns as they are ---


def _numpy(batch: Row) -> Row:
    return {**batch, "n": [len(batch["id"])] * 0 + [1] * len(batch["id"])}


def _pandas(rows: Any) -> Any:
    return rows[rows["id"] >= 0].assign(n=1)


def _pyarrow(rows: pa.Table) -> pa.Table:
    rows = rows.drop_columns(["n"]) if "n" in rows.column_names else rows
    return rows.append_column("n", pa.array([1] * len(rows), pa.int64()))


def _pylist(rows: list[Row]) -> list[Row]:
    return [{**row, "n": 1} for row in rows]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "pylist": _pylist,
}


def call_function(chain: Chain, number: int, other: Chain) -> Chain:
    batch_format: Any = list(FUNCTIONS)[number % len(FUNCTIONS)]
    if not chain.has("id"):
        return chain
    df = chain.df.map_batches(FUNCTIONS[batch_format], batch_format=batch_format, use_process=False)
    return _added(chain, df, "n", lambda row: 1)


def call_row_function(chain: Chain, number: int, other: Chain) -> Chain:
    def repeated(row: Row) -> list[Row]:
        return [row] * (len(row.get("s") or "") + number % 2)

    match number % 3:
        case 0:
            df = chain.df.map(lambda row: {**row, "n": 1}, use_process=False)
            return _added(chain, df, "n", lambda row: 1)
        case 1:
            rows = [row for row in chain.rows for _ in repeated(row)]
            return Chain(chain.df.flat_map(repeated, use_process=False), rows, chain.names)
        case _:
            kept = [row for row in chain.rows if row.get("s") is not None]
            return Chain(chain.df.filter(lambda row: row.get("s") is not None), kept, chain.names)


# --- verbs ---


def add_column(chain: Chain, number: int, other: Chain) -> Chain:
    if not chain.has("t", "i"):
        return chain
    if number % 2:
        return _added(chain, chain.df.with_column("h", date_trunc("hour", col("t"))), "h", lambda row: _hour(row["t"]))
    df = chain.df.with_column("j", col("i") + 1)
    return _added(chain, df, "j", lambda row: None if row["i"] is None else row["i"] + 1)


def keep_rows(chain: Chain, number: int, other: Chain) -> Chain:
    if not chain.has("id"):
        return chain
    least = [1, 4, 100][number % 3]
    return Chain(
        chain.df.where(col("id") >= least),
        [row for row in chain.rows if row["id"] is not None and row["id"] >= least],
        chain.names,
    )


def sort_rows(chain: Chain, number: int, other: Chain) -> Chain:
    keys = [name for name in ("s", "t", "i", "id") if chain.has(name)][: 1 + number % 3]
    return Chain(chain.df.sort(keys, desc=bool(number % 2)), chain.rows, chain.names) if keys else chain


def first_rows(chain: Chain, number: int, other: Chain) -> Chain:
    ids = [row.get("id") for row in chain.rows]
    if not chain.has("id") or None in ids or len(set(ids)) < len(ids):
        return chain
    rows = sorted(chain.rows, key=lambda row: row["id"])[:number]
    return Chain(chain.df.sort("id").limit(number), rows, chain.names)


def distinct_rows(chain: Chain, number: int, other: Chain) -> Chain:
    names = [name for name in ("s", "i", "t", "f", "l", "d") if chain.has(name)][: 1 + number % 4]
    if not names:
        return chain
    rows = [dict(zip(names, (row[name] for name in names), strict=True)) for row in chain.rows]
    return Chain(chain.df.select(*names).distinct(*names), list({plain(row): row for row in rows}.values()), names)


def group_rows(chain: Chain, number: int, other: Chain) -> Chain:
    if not chain.has("s", "i", "t", "d"):
        return chain
    groups: dict[Any, list[Row]] = {}
    for row in chain.rows:
        groups.setdefault(row["s"], []).append(row)

    def values(rows: list[Row], name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    rows = [
        {
            "s": key,
            "i": sum(values(group, "i")) if values(group, "i") else None,
            "t": max(values(group, "t"), default=None),
            "d": min(values(group, "d"), default=None),
            "n": len(group),
        }
        for key, group in groups.items()
    ]
    aggregates = col("i").sum(), col("t").max(), col("d").min(), col("s").count("all").cast("int64").alias("n")
    return Chain(chain.df.groupby("s").agg(*aggregates), rows, ["s", "i", "t", "d", "n"])


def join_rows(chain: Chain, number: int, other: Chain) -> Chain:
    key = ["s", "i", "t"][number % 3]
    if not chain.has(key) or not other.has(key):
        return chain
    how: Any = ["inner", "left", "right", "outer", "semi", "anti"][number % 6]
    if (chain.may_lack_columns and how in ("right", "outer")) or (other.may_lack_columns and how in ("left", "outer")):
        return chain  # the result has rows, but not all columns
    right = [{key: row[key], "r": row["id"]} for row in other.rows]

    def is_pair(row: Row, match: Row) -> bool:
        return row[key] is not None and row[key] == match[key]

    pairs = [(row, match) for row in chain.rows for match in right if is_pair(row, match)]
    alone = [row for row in chain.rows if not any(is_pair(row, match) for match in right)]
    lonely = [match for match in right if not any(is_pair(row, match) for row in chain.rows)]
    rows = {
        "semi": [row for row in chain.rows if row not in alone],
        "anti": alone,
    }.get(how, [{**row, "r": match["r"]} for row, match in pairs])
    rows = rows + ([{**row, "r": None} for row in alone] if how in ("left", "outer") else [])
    rows += [dict.fromkeys(chain.names) | match for match in lonely] if how in ("right", "outer") else []
    names = chain.names if how in ("semi", "anti") else [*(name for name in chain.names if name != "r"), "r"]
    left = chain.df.exclude("r") if chain.has("r") else chain.df
    if how in ("semi", "anti"):
        left = chain.df
    return Chain(left.join(other.df.select(key, r=col("id")), on=key, how=how), rows, names)


def combine_rows(chain: Chain, number: int, other: Chain) -> Chain:
    names = [name for name in ("s", "i", "t", "d") if chain.has(name) and other.has(name)]
    if not names:
        return chain
    left, right = (Counter(_tuples(each, names)) for each in (chain, other))
    verbs: list[tuple[str, Callable[[], Counter[Any]]]] = [
        ("union", lambda: Counter(set(left) | set(right))),
        ("intersect", lambda: Counter(set(left) & set(right))),
        ("except_distinct", lambda: Counter(set(left) - set(right))),
        ("intersect_all", lambda: left & right),
        ("except_all", lambda: left - right),
        ("concat", lambda: left + right),
        ("union_by_name", lambda: Counter(set(left) | set(right))),
        ("union_all_by_name", lambda: left + right),
    ]
    verb, expected = verbs[number % len(verbs)]
    originals = {each: row for rows in (chain, other) for row in rows.rows for each in _tuples_of([row], names)}
    rows = [{name: originals[each][name] for name in names} for each in expected().elements()]
    combined = getattr(chain.df.select(*names), verb)(other.df.select(*names))
    return Chain(combined, rows, names)


def query_rows(chain: Chain, number: int, other: Chain) -> Chain:
    if not chain.has("id", "s", "t") or chain.may_lack_columns:
        return chain
    names = ["id", "s", "t", *(name for name in ("i", "d", "l", "f") if chain.has(name))]
    day = "date_trunc('day', t::timestamptz) as day"  # a column of nulls has no type after a function
    text = f"select {', '.join(names)}, s || '!' as u, {day} from chain where id <> {number}"
    rows = [
        {
            **{name: row[name] for name in names},
            "u": None if row["s"] is None else row["s"] + "!",
            "day": _day(row["t"]),
        }
        for row in chain.rows
        if row["id"] is not None and row["id"] != number
    ]
    return Chain(ps.sql(text, chain=chain.df), rows, [*names, "u", "day"])


def count_rows(chain: Chain, number: int, other: Chain) -> Chain:
    if not chain.has("s"):
        return chain
    counted = chain.df.agg(col("s").count().cast("int64").alias("n"))
    return Chain(counted, [{"n": sum(row["s"] is not None for row in chain.rows)}], ["n"])


VERBS = [
    *(call_function, call_function, call_function, call_row_function, call_row_function, add_column, keep_rows),
    *(sort_rows, first_rows, distinct_rows, group_rows, join_rows, join_rows, combine_rows, query_rows, count_rows),
]


def _added(chain: Chain, df: ps.DataFrame, name: str, value: Callable[[Row], Any]) -> Chain:
    rows = [{**row, name: value(row)} for row in chain.rows]
    return Chain(df, rows, [*chain.names, *([] if chain.has(name) else [name])])


def _hour(moment: dt.datetime | None) -> dt.datetime | None:
    """Return the start of an hour; the offsets of the zone are whole hours."""
    return None if moment is None else moment.replace(minute=0, second=0, microsecond=0)


def _day(moment: dt.datetime | None) -> dt.datetime | None:
    if moment is None:
        return None
    return moment.astimezone(NEW_YORK).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def _tuples(chain: Chain, names: list[str]) -> list[Any]:
    return _tuples_of(chain.rows, names)


def _tuples_of(rows: list[Row], names: list[str]) -> list[Any]:
    return [tuple(plain(row[name]) for name in names) for row in rows]


def plain(value: Any) -> Any:
    """Return a value that equals others of the same type only, NaN included; a moment in UTC."""
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in sorted(value.items()) if each is not None)
    if isinstance(value, dt.datetime):
        return "time", value.astimezone(dt.UTC)
    if isinstance(value, list):
        return "list", tuple(map(plain, value))
    return type(value).__name__, "nan" if isinstance(value, float) and math.isnan(value) else value


def check(chain: Chain) -> None:
    table = chain.df.to_arrow()
    assert Counter(map(plain, table.to_pylist())) == Counter(map(plain, chain.rows))
    for field in table.schema:
        if field.name in SCHEMA.names and table[field.name].null_count < len(table) and field.name != "n":
            assert field.type == SCHEMA.field(field.name).type, field.name


@given(tables(), tables(), st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 23)), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_a_chain_gives_the_rows_that_it_means(
    chain: Chain, other: Chain, verbs: list[tuple[Callable[..., Chain], int]], is_mapped: bool
) -> None:
    other = call_function(other, 1, other) if is_mapped else other
    other.may_lack_columns = is_mapped and not other.rows
    for verb, number in verbs:
        is_empty = chain.may_lack_columns or (not chain.rows and verb in (call_function, call_row_function))
        chain = verb(chain, number, other)
        chain.may_lack_columns = is_empty and not chain.rows
    check(chain)
