from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.io.formats.parquet import ParquetEncoding
from penstock.io.writer import file_sink
from penstock.plan.identity.differences import differences
from penstock.plan.identity.fingerprint import fingerprint
from penstock.plan.lower import lower
from penstock.plan.nodes import Plan, Write
from penstock.plan.optimizer import optimize
from tests.explained import explained

LONG = "20261118T152250-ed80f43e-fdd70fc4-00000.parquet"


def stage_names(plan: Plan) -> list[str]:
    return [stage.name for stage in lower(optimize(plan), is_ordered=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "a long way down" / "reviews"
    found.mkdir(parents=True)
    for name in ("reviews.parquet", "more.parquet", LONG):
        pq.write_table(pa.table({"text": ["a"]}), found / name)
    return found


@pytest.fixture(autouse=True)
def _provider() -> None:
    ps.set_provider("openai", base_url="http://localhost:1/v1", api_key="sk-very-secret")


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        ("reviews.parquet", "read reviews.parquet"),
        (["reviews.parquet"], "read reviews.parquet"),
        ("", "read reviews/"),
        ("*e*.parquet", "read *e*.parquet"),
        (["reviews.parquet", "more.parquet"], "read 2 files"),
        (LONG, "read 20261118T152250-ed8…0000.parquet"),
    ],
)
def test_a_read_is_named_by_the_end_of_its_path(folder: Path, paths: Any, name: str) -> None:
    given = [str(folder / path) for path in paths] if isinstance(paths, list) else str(folder / paths)
    assert stage_names(ps.read_parquet(given)._plan) == [name]


def test_reads_of_memory_files_and_databases(tmp_path: Path, folder: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER)")
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    frames = [
        ps.from_pydict({"a": [1]}),
        ps.range(3),
        ps.range(3).collect(),
        ps.from_glob_path(f"{folder}/*.parquet"),
        ps.read_sql("SELECT id FROM orders WHERE id > 3", url),
        ps.read_sql("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id", url),
    ]
    assert [stage_names(frame._plan)[0] for frame in frames] == [
        "from_pydict",
        "read range(0, 3)",
        "read collected",
        "read 3 files",
        "read table orders",
        "read sql query",
    ]


def test_a_write_is_named_by_the_end_of_its_path(tmp_path: Path) -> None:
    sink = file_sink(tmp_path / "far" / "away" / "out", ParquetEncoding())
    assert stage_names(Write(ps.range(3)._plan, sink))[-1] == "write out/"


class Predictor:
    def __call__(self, batch: Any) -> Any:
        return batch


def shout(text: str) -> str:
    return text.upper()


def test_calls_are_named_by_their_model_or_function() -> None:
    text = ps.col("text")
    calls = {
        "prompt gpt-5-mini": ps.prompt(text, model="gpt-5-mini"),
        "prompt": ps.prompt(text, model=text),
        "embed text-embedding-3-small": ps.embed_text(text, provider="openai", model="text-embedding-3-small"),
        "classify gpt-5": ps.classify_text(text, ["good", "bad"], provider="openai", model="gpt-5"),
        "prompt Llama-3.1-8B": ps.prompt(text, model="meta-llama/Llama-3.1-8B"),
        "udf shout": ps.func(shout)(text),
        "download": text.download(),
    }
    df = ps.from_pydict({"text": ["a"]})
    assert {stage_names(df.select(call.alias("x"))._plan)[1]: name for name, call in calls.items()} == {
        name: name for name in calls
    }
    verbs = df.map_batches(Predictor).sort("text").limit(10)
    assert stage_names(verbs._plan)[1:] == ["map_batches Predictor", "sort text; first 10"]
    assert stage_names(df.join(df, on="text")._plan)[-1] == "inner join on text"
    assert stage_names(df.map_batches(Predictor).limit(10)._plan)[-1] == "limit 10"


def test_stages_of_the_same_name_are_told_apart_by_their_column_or_a_number() -> None:
    text = ps.col("text")
    df = ps.from_pydict({"text": ["a"]}).concat(ps.from_pydict({"text": ["a"]}))
    df = df.with_column("summary", ps.prompt(text, model="gpt-5")).with_column("title", ps.prompt(text, model="gpt-5"))
    assert stage_names(df._plan) == [
        "from_pydict (1)",
        "from_pydict (2)",
        "concat",
        "prompt gpt-5 as summary",
        "prompt gpt-5 as title",
    ]


def test_a_filter_by_a_call_shows_the_call_and_no_temporary_column() -> None:
    df = ps.from_pydict({"text": ["a"], "b": [1]}).where(ps.func(shout)(ps.col("text")) == "A").select("b")
    assert stage_names(df._plan)[-1] == "filter shout(col(text)) == 'A'"


def test_names_hold_no_secrets() -> None:
    class Custom:
        name = "https://me:hunter2@host/data?token=abc"
        can_filter = False

        def schema(self) -> ps.Schema:
            return ps.Schema.from_pydict({"text": ps.DataType.string()})

        def read_tasks(self, request: Any) -> Any:
            return iter(())

    df = ps.read_source(Custom()).map_batches(Predictor).where(ps.col("text") == "sk-very-secret")
    assert not [secret for secret in ("hunter2", "abc", "very-secret") if secret in " ".join(stage_names(df._plan))]


def test_statistics_and_explain_show_the_same_names(folder: Path, tmp_path: Path) -> None:
    df = ps.read_parquet(f"{folder}/reviews.parquet").with_column("loud", ps.func(shout)(ps.col("text")))
    names = ["read reviews.parquet", "udf shout"]
    assert [stage.stage for stage in df.collect().stats().stages] == names
    df = ps.read_parquet(f"{folder}/reviews.parquet").with_column("loud", ps.func(shout)(ps.col("text")))
    assert all(name in explained(df).split("== Stages ==")[1] for name in names)
    assert [stage.stage for stage in df.write_parquet(str(tmp_path / "out")).stats().stages] == [*names, "write out/"]


def test_the_fingerprint_of_a_job_does_not_depend_on_the_text_of_expressions() -> None:
    df = ps.from_pydict({"text": ["a"]}).with_column("x", ps.prompt(ps.format("Say {text}"), model="gpt-5"))
    now = json.loads(json.dumps(fingerprint(df._plan)))
    then = json.loads(json.dumps(now).replace("Say {text}", "written in another way"))
    assert then["steps"] != now["steps"]
    then_digest, now_digest = (each["steps"][-1]["column 'x'"]["digest"] for each in (then, now))
    assert then_digest == now_digest
    assert differences(then, now) == []
