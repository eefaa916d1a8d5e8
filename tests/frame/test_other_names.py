"""Names that hands know from pandas, Polars and Spark work, or their error says what to write."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.frame.other_names import HABITS


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "text": ["x", "y", "z"]})


def test_the_names_of_pandas_and_polars(df: ps.DataFrame) -> None:
    assert df.head(2).to_pydict()["a"] == [1, 2]
    assert len(df.head().to_pylist()) == 3
    assert df.drop("text").columns == df.drop(["text"]).columns == ["a"]
    assert df.rename({"a": "n"}).columns == ["n", "text"]
    assert df.group_by("text").agg(ps.col("a").sum()).sort("text").to_pydict()["a"] == [1, 2, 3]
    assert df.with_columns({"b": ps.col("a")}, (ps.col("a") + 1).alias("c"), d=0).head(1).to_pylist() == [
        {"a": 1, "text": "x", "b": 1, "c": 2, "d": 0}
    ]


def test_shape_is_known_once_the_rows_are_in_memory(df: ps.DataFrame) -> None:
    assert df.shape == (3, 2)
    lazy = df.where(ps.col("a") > 1)
    assert not hasattr(lazy, "shape")
    with pytest.raises(AttributeError, match=r"known after collect\(\); count_rows\(\)"):
        lazy.shape  # noqa: B018
    assert lazy.collect().shape == (2, 2)


def test_polars_there_and_back(df: ps.DataFrame) -> None:
    frame = df.to_polars()
    assert ps.from_polars(frame).to_pydict() == ps.from_polars(frame.lazy()).to_pydict() == df.to_pydict()
    with pytest.raises(InvalidArgumentError, match="from_polars takes a Polars DataFrame; got dict"):
        ps.from_polars({"a": 1})  # type: ignore[arg-type]


def test_other_libraries_read_a_query_by_arrows_protocol(df: ps.DataFrame) -> None:
    import polars

    query = df.where(ps.col("a") > 1)
    assert pa.table(query).to_pydict() == query.to_pydict()
    assert polars.DataFrame(query).to_dict(as_series=False) == query.to_pydict()
    unknown = df.map_batches(lambda batch: {"b": batch["a"]})
    assert pa.table(unknown).to_pydict() == {"b": [1, 2, 3]}
    assert ps.from_arrow(query).to_pydict() == query.to_pydict()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("withColumn", "Write df.with_column(name, expr)."),
        ("iloc", "Write df.limit(n), offset(m), or where(...) for rows."),
        ("selct", "Did you mean 'select'?"),
        ("text", 'For the column write df["text"] or ps.col("text").'),
        ("lazy", "Leave it out: a DataFrame is lazy already."),
        ("sql", 'Write ps.sql("select ... from df").'),
    ],
)
def test_an_unknown_attribute_says_what_to_write(df: ps.DataFrame, name: str, advice: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(df, name)
    assert str(raised.value) == f"DataFrame has no attribute {name!r}. {advice}"


def test_no_habit_hides_a_verb_and_each_leads_to_one() -> None:
    assert not [name for name in HABITS if name in dir(ps.DataFrame)]
    verbs = {ours.partition("(")[0] for ours in HABITS.values() if not ours.startswith(("ps.", "len("))}
    assert verbs <= set(dir(ps.DataFrame))


def test_copies_and_pickles_look_for_no_columns(df: ps.DataFrame) -> None:
    assert copy.copy(df).to_pydict() == df.to_pydict()
    assert pickle.loads(pickle.dumps(df)).to_pydict() == df.to_pydict()
    assert not hasattr(df, "_ipython_canary_method_should_not_exist_")


def test_show_takes_the_number_once(df: ps.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    df.show(1)
    assert "y" not in capsys.readouterr().out
    df.show(limit=1)  # type: ignore[call-arg]  # as Ray Data spells it
    assert "y" not in capsys.readouterr().out


def test_a_delta_table_is_written_and_read(df: ps.DataFrame, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    written = df.write_deltalake(table, partition_cols=["text"])
    assert len(written.to_pydict()["path"]) == 3
    with pytest.raises(Exception, match="already exists"):
        df.write_deltalake(table)
    df.write_deltalake(table, mode="append")
    assert ps.read_deltalake(table).count_rows() == 6
    df.write_deltalake(table, mode="overwrite")
    assert ps.read_deltalake(table).sort("a").to_pydict() == df.to_pydict()
    with pytest.raises(InvalidArgumentError, match="mode='error' is not known"):
        df.write_deltalake(table, mode="error")  # type: ignore[arg-type]


def test_a_failed_row_is_the_error_of_a_delta_write(df: ps.DataFrame, tmp_path: Path) -> None:
    fail = ps.func(lambda x: 1 // (x - 2), return_dtype=int)
    with pytest.raises(ZeroDivisionError):
        df.with_column("b", fail(ps.col("a"))).write_deltalake(tmp_path / "table")
