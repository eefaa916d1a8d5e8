"""A mistake is told on the line that makes it, by what is wrong, where, and what there is instead."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, PenstockError, TypeMismatchError

Verb = Callable[[ps.DataFrame], Any]


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"age": [1, 2], "name": ["x", "y"], "tags": [["p"], []], "at": [{"lat": 1.0}, {"lat": 2.0}]})


def told(df: ps.DataFrame, verb: Verb, error: type[Exception]) -> str:
    """Return the message of the error that building the query raises, on the line of the test that builds it."""
    with pytest.raises(error) as caught:
        verb(df)
    users = [frame for frame in traceback.extract_tb(caught.tb) if frame.filename == __file__]
    assert users[-1].name == "<lambda>", "the last of the user's frames is not the line with the mistake"
    assert "runners" not in "".join(frame.filename for frame in traceback.extract_tb(caught.tb)), "it was run"
    return str(caught.value)


@pytest.mark.parametrize(
    "verb",
    [
        lambda df: df.select("agee"),
        lambda df: df.select(col("agee") + 1),
        lambda df: df.select(x="agee"),
        lambda df: df.with_column("x", col("agee")),
        lambda df: df.with_columns({"x": col("age"), "y": col("agee") * 2}),
        lambda df: df.with_column_renamed("agee", "x"),
        lambda df: df.rename_columns({"agee": "x"}),
        lambda df: df.exclude("agee"),
        lambda df: df.drop_columns(["name", "agee"]),
        lambda df: df.where(col("agee") > 1),
        lambda df: df.explode("agee"),
        lambda df: df.explode(col("agee").split(",")),
        lambda df: df.drop_null("agee"),
        lambda df: df.drop_nan("agee"),
        lambda df: df.unpivot("agee", "name"),
        lambda df: df.unpivot("name", ["age", "agee"]),
        lambda df: df["agee"],
        lambda df: df[["name", "agee"]],
        lambda df: df.select(ps.func(return_dtype=int)(lambda x: x)(col("agee"))),
        lambda df: df.write_parquet("/nowhere", partition_cols=["agee"]),
    ],
)
def test_a_column_that_is_not_there(df: ps.DataFrame, verb: Verb) -> None:
    message = told(df, verb, ColumnNotFoundError)
    assert message.startswith("Column 'agee' not found")
    assert message.endswith("available: age, name, tags, at. Did you mean 'age'?")


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda df: df.where(col("age")), "filter needs a bool expression, but col(age) is int64"),
        (lambda df: df.where(col("name") > 1), "col(name) > 1: cannot compare string with int64"),
        (lambda df: df.select(col("name") * 2), "col(name) * 2: cannot multiply string and int64"),
        (lambda df: df.select(col("tags") + 1), "col(tags) + 1"),
        (lambda df: df.select(col("age").upper()), "upper(col(age))"),
        (lambda df: df.explode("age"), "explode needs a list column, but 'age' is int64"),
        (lambda df: df.drop_nan("name"), "is_nan(col(name)): expected a number, got string"),
        (lambda df: df.select(ps.unnest(col("age"))), "unnest(col(age)): expected a struct, got int64"),
        (lambda df: df.unpivot("age", ["name", "tags"]), "'tags' is list[string] and 'name' is string; cast them"),
        (lambda df: df.select("age").concat(df.select(age="name")), "column 'age' is int64 on one side and string on"),
        (lambda df: df.select(col("at")["lon"]), "lon"),
    ],
)
def test_a_type_that_does_not_fit(df: ps.DataFrame, verb: Verb, message: str) -> None:
    assert message in told(df, verb, TypeMismatchError)


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda df: df.where(col("age") > 1 and col("age") < 5), "Use & | ~ for and, or, not"),
        (lambda df: df.where(not col("age") > 1), "Use & | ~ for and, or, not"),
        (lambda df: df.where(1 < col("age") < 5), "Use & | ~ for and, or, not"),
        (lambda df: df.select(*col("tags")), "no values to iterate over before it runs"),
        (lambda df: len(df.limit(1)), "use count_rows()"),
    ],
)
def test_python_that_needs_a_value_before_there_is_one(df: ps.DataFrame, verb: Verb, message: str) -> None:
    assert message in told(df, verb, TypeError)


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda df: df.select(1), "A column is a name or an expression; got 1 of type int"),
        (lambda df: df.select(["age"]), "A column is a name or an expression; got ['age'] of type list"),
        (lambda df: df.select("age", "age"), "Two columns have the name 'age'; rename one with .alias"),
        (lambda df: df.select("age", age=col("name")), "Two columns have the name 'age'"),
        (lambda df: df.with_column(1, col("age")), "The name of a column is text; got 1 of type int"),
        (lambda df: df.with_column("x", "age"), "write ps.col('age') for that column, or ps.lit('age')"),
        (lambda df: df.with_columns([col("age")]), "with_columns takes a dict by column name; got [col(age)]"),
        (lambda df: df.rename_columns({"age": "name"}), "Two columns have the name 'name'"),
        (lambda df: df.rename_columns({"age": 3}), "The name of a column is text; got 3"),
        (lambda df: df.rename_columns("age"), "rename_columns takes a dict by column name; got 'age'"),
        (lambda df: df.exclude(["age"]), "The name of a column is text; got ['age'] of type list"),
        (lambda df: df.exclude(col("age")), "The name of a column is text; got col(age)"),
        (lambda df: df.where("age >"), 'SQL: syntax error at or near ">"'),
        (lambda df: df.where(True), "where takes an expression or a function of a row; got True"),
        (lambda df: df.where(col("age") > 1, batch_size=3), "where takes batch_size with a function only"),
        (lambda df: df.limit(-1), "limit needs a whole number, 0 or more; got -1"),
        (lambda df: df.limit(1.5), "limit needs a whole number, 0 or more; got 1.5"),
        (lambda df: df.limit(None), "limit needs a whole number, 0 or more; got None"),
        (lambda df: df.limit(True), "limit needs a whole number, 0 or more; got True"),
        (lambda df: df.offset("2"), "offset needs a whole number, 0 or more; got '2'"),
        (lambda df: df.take(-1), "limit needs a whole number, 0 or more; got -1"),
        (lambda df: df.show(-1), "limit needs a whole number, 0 or more; got -1"),
        (lambda df: df.explode(), "explode needs at least one list column"),
        (lambda df: df.into_batches(0), "into_batches needs a whole number of 1 or more; got 0"),
        (lambda df: df.repartition("2"), "repartition needs a whole number of 1 or more; got '2'"),
        (lambda df: df.concat([df]), "must be a DataFrame; got list"),
        (lambda df: df.concat(ps.range(1)), "concat needs the same columns on both sides: age, name, tags, at against"),
        (lambda df: df.unpivot("age", []), "unpivot needs at least one value column"),
        (lambda df: df.monotonically_increasing_id("age"), "Column 'age' exists already; choose another"),
        (lambda df: df.pipe(lambda df: 3), "pipe needs a function that returns a DataFrame; got int"),
        (lambda df: df[0], "df[0]: rows have no numbers before the query runs. Use df.take(n)"),
        (lambda df: df[-1], 'or df["name"] for a column'),
        (lambda df: df[0:5], "df[0:5]: rows have no numbers before the query runs. Use df.take(n)"),
        (lambda df: df[:10:2], "df[:10:2]: rows have no numbers"),
        (lambda df: df[:5], "df[:5]: rows have no numbers"),
        (lambda df: df["age", "name"], "df[...] takes a list of columns: df[['age', 'name']]"),
        (
            lambda df: df.sort("age", ascending=False),
            "sort has no option 'ascending'; known: by, desc, nulls_first. Use desc=",
        ),
        (lambda df: df.sort("age", reverse=True), "Use desc= instead."),
        (lambda df: df.sort("age", inplace=True), "a verb changes nothing and returns a new DataFrame"),
        (lambda df: df[True], "The name of a column is text; got True"),
        (lambda df: df[col("age") > 1], "use df.where(col(age) > 1) to keep rows"),
        (lambda df: df.show(format="fancyy"), "format='fancyy' is not known"),
        (
            lambda df: df.iter_batches(batch_format="numpi"),
            "batch_format='numpi' is not known; use one of numpy, pandas",
        ),
        (lambda df: df.iter_batches(batch_size=0), "batch_size must be a whole number of at least 1, or None for"),
        (lambda df: df.iter_batches(batch_size=-1), "batch_size must be a whole number of at least 1, or None for"),
        (lambda df: df.iter_batches(batch_size="8"), "as the query makes them; got '8'"),
        (lambda df: df.iter_batches(batch_size=True), "as the query makes them; got True"),
        (lambda df: df.iter_torch_batches(batch_size=0), "batch_size must be a whole number of at least 1"),
        (lambda df: df.aiter_batches(batch_size=0), "batch_size must be a whole number of at least 1"),
        (lambda df: df.iter_batches(prefetch=-1), "prefetch needs a whole number, 0 or more; got -1"),
        (lambda df: df.take_batch(2, "torc"), "Did you mean 'torch'?"),
        (lambda df: df.write_parquet("/nowhere", mode="apend"), "mode='apend' is not known"),
        (lambda df: df.write_parquet("/nowhere", compression="zipp"), "compression='zipp'"),
        (lambda df: df.write_sink(3), "write_sink takes a Sink"),
    ],
)
def test_an_argument_that_makes_no_sense(df: ps.DataFrame, verb: Verb, message: str) -> None:
    assert message in told(df, verb, InvalidArgumentError)


class Model:
    def __init__(self, path: str) -> None: ...

    def __call__(self, batch: Any, threshold: float = 0.5) -> Any: ...


class NoCall: ...


def predict(batch: Any, model: Any) -> Any: ...


@ps.cls
class Decorated:
    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda df: df.map_batches(predict, batchsize=3), "map_batches has no option 'batchsize'"),
        (lambda df: df.map_batches(predict, batchsize=3), "Did you mean 'batch_size'?"),
        (lambda df: df.map(predict, numgpus=1), "map has no option 'numgpus'"),
        (lambda df: df.flat_map(predict, batch_format="pandas"), "flat_map has no option 'batch_format'"),
        (lambda df: df.filter(predict, onerror="log"), "Did you mean 'on_error'?"),
        (lambda df: df.map_batches(3), "map_batches takes a function or a class; got 3"),
        (lambda df: df.map_batches(NoCall), "class 'NoCall' needs a __call__ method that takes a batch"),
        (lambda df: df.map_batches(Decorated), "'Decorated' is made by cls"),
        (lambda df: df.map_batches(Decorated()), "is made by cls"),
        (lambda df: df.map_batches(predict), "predict: missing a required argument: 'model'"),
        (lambda df: df.map_batches(predict, fn_kwargs={"mdel": 1}), "it is defined as predict(batch"),
        (lambda df: df.map_batches(predict, fn_args=(1, 2)), "predict: too many positional arguments"),
        (lambda df: df.map_batches(Model), "Model: missing a required argument: 'path'"),
        (lambda df: df.map_batches(Model, fn_constructor_kwargs={"pth": 1}), "Model: missing a required argument"),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", fn_kwargs={"t": 1}), "keyword argument 't'"),
        (lambda df: df.map_batches(predict, fn_args=[1], fn_constructor_args=[1]), "'predict' is a function"),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", batch_size=0), "1 or more; got 0"),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", batch_size=True), "1 or more; got True"),
        (
            lambda df: df.map_batches(Model, fn_constructor_args="m", batch_format="np"),
            "batch_format='np' is not known",
        ),
        (
            lambda df: df.map_batches(Model, fn_constructor_args="m", on_error="skip"),
            "must be 'raise', 'null' or 'log'",
        ),
        (
            lambda df: df.map_batches(Model, fn_constructor_args="m", concurrency=0),
            "concurrency is a number of 1 or more",
        ),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", concurrency=(3, 1)), "or (min, max); got (3, 1)"),
        (
            lambda df: df.map_batches(Model, fn_constructor_args="m", compute="actors"),
            "compute is an ActorPoolStrategy",
        ),
        (
            lambda df: df.map_batches(Model, fn_constructor_args="m", compute=ps.TaskPoolStrategy(), concurrency=1),
            "give compute= or concurrency=, not both",
        ),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", num_gpus=-1), "gpus must be a number of 0 or"),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", max_retries=-1), "max_retries must be a whole"),
        (lambda df: df.map_batches(Model, fn_constructor_args="m", memory="lots"), "'lots' is not a size"),
        (lambda df: ps.ActorPoolStrategy(size=0), "ActorPoolStrategy: size must be a whole number of 1 or more; got 0"),
        (lambda df: ps.ActorPoolStrategy(min_size=3, max_size=2), "max_size must not be less than min_size"),
        (
            lambda df: ps.TaskPoolStrategy(size="2"),
            "TaskPoolStrategy: size must be a whole number of 1 or more; got '2'",
        ),
    ],
)
def test_a_function_or_an_option_that_cannot_work(df: ps.DataFrame, verb: Verb, message: str) -> None:
    assert message in told(df, verb, InvalidArgumentError)


def test_an_output_that_exists_is_not_touched(df: ps.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=str(tmp_path)):
        df.select("age").write_parquet(str(tmp_path))
    assert (tmp_path / "data.parquet").read_bytes() == b"mine"


def test_every_error_on_purpose_is_a_penstock_error_and_of_a_familiar_kind() -> None:
    assert issubclass(ColumnNotFoundError, PenstockError)
    assert issubclass(ColumnNotFoundError, ValueError)
    assert issubclass(TypeMismatchError, TypeError)
    assert issubclass(InvalidArgumentError, ValueError)


def test_the_columns_of_a_wide_table_are_not_all_named() -> None:
    with pytest.raises(ColumnNotFoundError, match=r"available: c0, c1, .*\.\.\.\. Did you mean 'c500'\?") as raised:
        ps.from_pydict({f"c{number}": [1] for number in range(1000)}).select("c5000")
    assert len(str(raised.value)) < 700
