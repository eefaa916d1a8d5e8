"""SQL over DataFrames: DuckDB runs it, and models and Python functions run as stages."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ComputeError, InvalidArgumentError
from penstock.functions import date_trunc
from penstock.testing import ModelServer

REVIEWS = {"id": [1, 2, 3, 4], "stars": [5, 1, 4, None], "text": ["good", "bad", "fine", "no"]}
PRODUCTS = {"id": [1, 2, 3], "name": ["lamp", "desk", "cup"]}


@ps.func
def shout(text: str) -> str:
    return text.upper() + "!"


@ps.func
def size(text: str) -> int:
    return len(text)


@ps.cls
class Add:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: int) -> int:
        return x + self.n


add5 = Add(5)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select upper(text) as t from reviews where stars > 4", {"t": ["GOOD"]}),
        ("select name, sum(stars) s from reviews join products using (id) group by name order by s limit 1",
         {"name": ["desk"], "s": [1]}),
        ("select count(*) as n from reviews a join reviews b on a.id = b.id + 1", {"n": [3]}),
        ("with x as (select id from reviews) select max(a.id) m from x a, x b", {"m": [4]}),
        ("select Id from REVIEWS order by iD limit 1", {"id": [1]}),
        ("select shout(text) s from reviews where size(text) = 4 and id > 0 order by s", {"s": ["FINE!", "GOOD!"]}),
        ("select *, size(text) from reviews where id = 2", {"id": [2], "stars": [1], "text": ["bad"], "size": [3]}),
        ("select avg(size(text)) m from reviews where stars > 0 group by stars > 3 order by m", {"m": [3.0, 4.0]}),
        ("with x as (select shout(text) s, id from reviews) select s, name from x join products p on x.id = p.id "
         "order by s limit 1", {"s": ["BAD!"], "name": ["desk"]}),
        ("select shout(shout(text)) s from (select * from reviews where size(text) < 3) q", {"s": ["NO!!"]}),
        ("select r.id, shout(r.text || p.name) s from reviews r join products p on r.id = p.id where r.id = 3",
         {"id": [3], "s": ["FINECUP!"]}),
        ("select shout(text) s from reviews where id = 1 union all select name from products where id = 1 order by s",
         {"s": ["GOOD!", "lamp"]}),
        ("select size(text) as s, count(*) as n from reviews group by size( text ) order by s",
         {"s": [2, 3, 4], "n": [1, 1, 2]}),
        ("select shout(text) s from reviews order by id desc limit 1", {"s": ["NO!"]}),
        ("select shout(text) s from reviews order by s limit 1 offset 1", {"s": ["FINE!"]}),
        ("select max(shout(text)) s from reviews limit 1", {"s": ["NO!"]}),
        ("select add5(id) a from reviews where id = 2", {"a": [7]}),
        ("select list_transform([1, 2], lambda x: x + size(text)) l from reviews where id = 2", {"l": [[4, 5]]}),
    ],
)  # fmt: skip
def test_queries(query: str, expected: dict[str, list[Any]]) -> None:
    tables = {"reviews": ps.from_pydict(REVIEWS), "products": ps.from_pydict(PRODUCTS)}
    result = ps.sql(query, **tables)
    assert result.to_pydict() == expected or {k.lower(): v for k, v in result.to_pydict().items()} == expected
    assert result.schema.to_arrow().equals(result.to_arrow().schema)


def test_queries_without_a_table() -> None:
    assert ps.sql("select 1 as one, upper('x') as x").to_pydict() == {"one": [1], "x": ["X"]}
    assert ps.sql("select * from range(3) as t(n)").to_pydict() == {"n": [0, 1, 2]}
    assert ps.sql("select 1 as one where false").to_pydict() == {"one": []}


def test_tables_and_functions_are_found_in_the_scope_of_the_caller() -> None:
    reviews = ps.from_pydict(REVIEWS)  # noqa: F841
    ITEMS = "a variable that is no table"  # noqa: F841, N806
    assert ps.sql("select * from items", items=ps.range(1)).to_pydict() == {"id": [0]}
    longer = ps.func(lambda text: text * 2, return_dtype="string")  # noqa: F841
    assert ps.sql("select longer(text) as t from reviews where id = 2").to_pydict() == {"t": ["badbad"]}
    with pytest.raises(InvalidArgumentError, match="there is no DataFrame 'reviews'"):
        ps.sql("select * from reviews", register_globals=False)


def test_the_result_goes_on_with_other_verbs() -> None:
    df = ps.sql("select id from reviews", reviews=ps.from_pydict(REVIEWS)).with_column("x", ps.col("id") * 2)
    assert df.where("x > 6").to_pydict() == {"id": [4], "x": [8]}


def test_attached_functions() -> None:
    ps.attach_function(shout, "yell")
    try:
        assert ps.sql("select yell(text) y from t", t=ps.from_pydict({"text": ["a"]})).to_pydict() == {"y": ["A!"]}
    finally:
        ps.detach_function("yell")
    with pytest.raises(InvalidArgumentError, match="No function 'yell' is attached"):
        ps.detach_function("yell")


@pytest.mark.parametrize(
    ("end", "ids"), [("order by id", [1, 3]), ("order by id desc limit 1", [3]), ("and text = 'good' limit 1", [1])]
)
def test_models_are_asked_only_for_the_rows_of_the_result(model_server: ModelServer, end: str, ids: list[int]) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    call = "prompt('Say: ' || text, model := 'gpt-5-mini', temperature := 0.5)"
    before = model_server.num_requests
    rows = ps.sql(f"select id, {call} as s from t where stars > 3 {end}", t=ps.from_pydict(REVIEWS)).to_pylist()
    assert [row["id"] for row in rows] == ids
    assert all(isinstance(row["s"], str) for row in rows)
    assert model_server.num_requests - before == len(ids)


def test_extension_types_pass_through() -> None:
    df = ps.from_pydict({"n": [2, 1]}).with_column(
        "e", ps.lit(np.arange(3, dtype=np.float32)).cast(ps.DataType.embedding("float32", 3))
    )
    result = ps.sql("select e as vector, n from vectors order by n", vectors=df)
    assert result.schema["vector"].dtype == ps.DataType.embedding("float32", 3)
    assert result.to_pydict()["vector"][0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selec 1", r'near "selec"\n  selec 1\n  \^'),
        ("select ratng from reviews", r'"ratng" not found.*\n.*\n  select ratng from reviews\n         \^'),
        ("select 1\nfrom revews", r"no DataFrame 'revews'.*Did you mean 'reviews'\?\n  from revews\n       \^"),
        ("select prmpt(text) from reviews", r"'prmpt'. Did you mean 'prompt'\?\n  select prmpt\(text\).*\n         \^"),
        ("select sum(text) from reviews", r"'sum\(VARCHAR\)'(.|\n)*\n  select sum\(text\) from reviews\n         \^"),
        ("select nope, shout(text) from reviews", r"\n  select nope, shout\(text\) from reviews\n         \^"),
        ("select shout() from reviews", r"missing 1 required.*\n.*\n         \^"),
        (
            "select 1 from reviews a join products b on shout(text) = name",
            r"shout cannot be in the condition of a join",
        ),
        ("select shout(string_agg(text, '')) from reviews", "cannot take an aggregate"),
        ("select shout(text) from reviews where id in (select id from products)", "subqueries only after FROM"),
        ("select * from read_csv('/etc/hostname'), reviews", "Cannot access file"),
        ("select 1; select 2", "one SELECT statement"),
        ("drop table x", "Only SELECT"),
    ],
)
def test_mistakes_point_at_the_token(query: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.sql(query, reviews=ps.from_pydict(REVIEWS), products=ps.from_pydict(PRODUCTS))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a + 1", ps.col("a") + 1),
        ("a * 0.5", ps.col("a") * 0.5),
        ("-a % 2", -ps.col("a") % 2),
        ("a > 1 and not b or c is null", ((ps.col("a") > 1) & ~ps.col("b")) | ps.col("c").is_null()),
        ("a in (1, 2)", ps.col("a").is_in([1, 2])),
        ("a between 1 and 2", ps.col("a").between(1, 2)),
        ("cast(a as bigint)", ps.col("a").cast("int64")),
        ("try_cast(a as double)", ps.col("a").try_cast("float64")),
        ("s.x", ps.col("s")["x"]),
        ("l[1]", ps.col("l")[0]),
        ("upper(a)", ps.col("a").upper()),
        ("case when a > 1 then 'x' else 'y' end", (ps.col("a") > 1).if_else("x", "y")),
        ("sum(a) / count(a)", ps.col("a").sum() / ps.col("a").count()),
    ],
)
def test_expressions(text: str, expression: ps.Expression) -> None:
    assert repr(ps.sql_expr(text)) == repr(expression)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a +", r'near "\+"\n  a \+\n    \^'),
        ("uper(a)", r"no function 'uper'. Did you mean 'upper'\?\n  uper\(a\)\n  \^"),
        ("cast(a as nothing)", "no type 'nothing'"),
        ("(select 1)", "subquery is not possible"),
        ("a, b", "2 expressions"),
        (3, "SQL is text"),
    ],
)
def test_mistakes_in_expressions(text: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.sql_expr(text)


def test_constant_times_are_constants() -> None:
    days = [dt.date(2024, 1, 1), dt.date(2025, 1, 1)]
    assert repr(ps.sql_expr("d >= date '2024-06-01'")) == repr(ps.col("d") >= dt.date(2024, 6, 1))
    assert ps.from_pydict({"d": days}).where("d >= '2024-06-01'::date").to_pydict() == {"d": days[1:]}
    with pytest.raises(ComputeError, match="2024-13-01"):
        ps.from_pydict({"d": days}).where("d >= date '2024-13-01'").collect()


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select * from a join b on a.k = b.k", ["k", "x", "b.k", "y"]),
        ("select * from a, b as c where a.k = c.k order by y desc;", ["k", "x", "c.k", "y"]),
        ("select * from a join b using (k)", ["k", "x", "y"]),
        ("select * from a semi join b on a.k = b.k", ["k", "x"]),
    ],
)
def test_a_star_over_a_join_names_a_repeated_column_by_its_table(query: str, columns: list[str]) -> None:
    a = ps.from_pydict({"k": [1, 2, 3], "x": ["one", "two", "three"]})
    b = ps.from_pydict({"k": [2, 3], "y": [20, 30]})
    found = ps.sql(query, a=a, b=b)
    assert found.columns == columns
    assert sorted(found.to_pydict()["k"]) == [2, 3]
    if "order by" in query:
        assert found.to_pydict()["y"] == [30, 20]


def test_two_selected_columns_of_one_name_are_refused() -> None:
    a, b = ps.from_pydict({"k": [1]}), ps.from_pydict({"k": [1]})
    with pytest.raises(InvalidArgumentError, match="two columns 'k'; rename one of them with AS"):
        ps.sql("select a.k, b.k from a join b on a.k = b.k", a=a, b=b)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC", "+09:00"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_times_keep_their_zone(zone: str, is_mapped: bool) -> None:
    moments = pa.array([dt.datetime(2026, 1, 2, 20, tzinfo=dt.UTC), None], pa.timestamp("us", zone))
    times = ps.from_arrow(pa.table({"t": moments, "l": pa.array([[each] for each in moments])}))
    times = times.map_batches(lambda batch: batch) if is_mapped else times
    query = "select t, l, t + interval 1 hour as later, date_trunc('day', t) as day, hour(t) as h from times limit 1"
    found = ps.sql(query).to_arrow()
    assert found.schema.types == [moments.type, pa.list_(moments.type), moments.type, moments.type, pa.int64()]
    local = times.select(day=date_trunc("day", ps.col("t")), h=ps.col("t").hour()).to_pylist()[0]
    assert {name: found[name][0].as_py() for name in ("day", "h")} == local
    assert found["later"][0].as_py() == dt.datetime(2026, 1, 2, 21, tzinfo=dt.UTC)


def test_times_of_several_zones_are_computed_in_utc() -> None:
    moment = dt.datetime(2026, 1, 2, 20, tzinfo=dt.UTC)
    columns = {zone: pa.array([moment], pa.timestamp("us", f"Asia/{zone}")) for zone in ("Tokyo", "Seoul")}
    pair = ps.from_arrow(pa.table(columns))
    found = ps.sql("select Tokyo, Seoul, greatest(Tokyo, Seoul) as both_times from pair", pair=pair).to_arrow()
    assert [dtype.tz for dtype in found.schema.types] == ["Asia/Tokyo", "Asia/Seoul", "UTC"]
