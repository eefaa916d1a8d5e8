"""Fingerprints: equal for the same script in every process; differences of two fingerprints as sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest

import penstock as ps
from penstock.plan.identity.differences import changed_inputs, differences
from penstock.plan.identity.fingerprint import fingerprint
from penstock.plan.nodes import Scan, Write
from penstock.protocols import ReadRequest, VersionedSource
from penstock.types import Schema


@pytest.fixture(autouse=True)
def _provider() -> None:
    ps.set_provider("openai", api_key="sk-very-secret-1", base_url="http://localhost:1/v1")


def of(df: ps.DataFrame) -> dict[str, Any]:
    """Return the fingerprint as a job reads it again from its file."""
    found: dict[str, Any] = json.loads(json.dumps(fingerprint(df._plan)))
    return found


def changes(then: ps.DataFrame, now: ps.DataFrame) -> list[str]:
    return differences(of(then), of(now))


class Review(pydantic.BaseModel):
    stars: int


class Verdict(pydantic.BaseModel):
    stars: int
    why: str


def rows() -> ps.DataFrame:
    return ps.from_pydict({"q": ["a", "b"], "x": [1, 2]})


def asked(text: Any = None, **options: Any) -> ps.DataFrame:
    given: dict[str, Any] = {"model": "gpt-5-nano", "system_message": "Be brief.", "temperature": 0} | options
    return rows().with_column("answer", ps.prompt(ps.col("q") if text is None else text, **given))


PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt-5-mini"}, "column 'answer': prompt: model changed from 'gpt-5-nano' to 'gpt-5-mini'"),
    ({"system_message": "Go on."}, "prompt: system_message changed from 'Be brief.' to 'Go on.'"),
    ({"system_message": None}, "prompt: system_message is gone; it was 'Be brief.'"),
    ({"temperature": 0.7}, "prompt: temperature changed from 0 to 0.7"),
    ({"top_p": 0.5}, "prompt: top_p is new: 0.5"),
    ({"n": 3}, "prompt: n is new: 3"),
    ({"provider": "google"}, "prompt: provider changed from 'openai' to 'google'"),
    ({"text": ps.format("{}!", ps.col("q"))}, "to 'prompt(\"{q}!\", model=gpt-5-nano) as answer'"),
    ({"text": ["Say:", ps.col("q")]}, "expression changed from 'prompt(col(q), model=gpt-5-nano) as answer' to"),
    ({"return_format": Review}, "columns: answer changed from 'string' to 'struct[stars: int64]'"),
]


@pytest.mark.parametrize(("change", "sentence"), PROMPTS, ids=[sentence for _, sentence in PROMPTS])
def test_a_changed_prompt_option_is_named(
    change: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "a-google-key")
    found = changes(asked(), asked(**change))
    assert any(sentence in each for each in found), found


def test_another_server_is_named() -> None:
    before = asked()
    ps.set_provider("openai", api_key="sk-very-secret-2", base_url="http://localhost:2/v1")
    [sentence] = changes(before, asked())
    assert "prompt: base_url changed from 'http://localhost:1/v1' to 'http://localhost:2/v1'" in sentence


def test_return_formats_count_by_fields_and_rules() -> None:
    [form, dtype] = changes(asked(return_format=Review), asked(return_format=Verdict))
    assert form.startswith("select: column 'answer': prompt: return_format changed from 'Review struct[stars: int64]'")
    assert dtype == "columns: answer changed from 'struct[stars: int64]' to 'struct[stars: int64, why: string]'"


def test_options_that_do_not_change_rows_do_not_count() -> None:
    before = of(asked())
    ps.set_provider("openai", api_key="sk-another-key", base_url="http://localhost:1/v1")
    options = {"max_concurrency": 3, "max_retries": 9, "timeout": 5, "on_error": "ignore", "requests_per_minute": 9}
    assert differences(before, of(asked(**options))) == []
    assert changed_inputs(before, of(asked(**options))) == set()


def test_a_fingerprint_holds_no_secret_and_no_address() -> None:
    df = asked(system_message="The key is sk-very-secret-1.")
    text = json.dumps(of(df)) + str(changes(df, asked()))
    assert "sk-very" not in text
    assert " at 0x" not in text


def scored(number: int, **options: Any) -> ps.DataFrame:
    @ps.func(**options)
    def score(x: int) -> int:
        return x + number

    return rows().with_column("s", score(ps.col("x")))


def test_the_code_of_a_function_counts() -> None:
    assert changes(scored(1), scored(1, max_retries=3, cpus=2, on_error="log")) == []
    assert changes(scored(1), scored(2)) == [
        "select: column 's': score: the closure variable number of function score changed from 1 to 2"
    ]


def test_a_version_replaces_the_code_of_a_function() -> None:
    assert changes(scored(1, version="a"), scored(2, version="a")) == []
    assert changes(scored(1, version="a"), scored(1, version="b")) == [
        "select: column 's': score: version changed from 'a' to 'b'"
    ]


def mapped(number: int, verb: str = "map_batches", **options: Any) -> ps.DataFrame:
    def change(batch: Any) -> Any:
        return number or batch

    return getattr(rows(), verb)(change, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize("verb", ["map_batches", "map", "flat_map", "filter"])
def test_the_code_of_a_batch_verb_counts(verb: str) -> None:
    assert changes(mapped(1, verb), mapped(1, verb, num_cpus=2)) == []
    assert changes(mapped(1, verb), mapped(2, verb)) == [
        f"{verb}: change: the closure variable number of function change changed from 1 to 2"
    ]


def test_constants_given_to_a_function_count() -> None:
    @ps.func
    def add(x: int, y: int) -> int:
        return x + y

    [sentence] = changes(rows().select(add(ps.col("x"), 1)), rows().select(add(ps.col("x"), 2)))
    assert sentence == "select: column 'x': add: argument 2 changed from 1 to 2"


STEPS: list[tuple[Any, str]] = [
    (lambda df: df.where(ps.col("x") > 2), "filter: predicate: expression changed from 'col(x) > 1' to 'col(x) > 2'"),
    (lambda df: df.where(ps.col("x") > 1).where(ps.col("x") < 9), "filter is new: step 'filter', predicate col(x) < 9"),
    (lambda df: df, "filter is gone; it was step 'filter', predicate col(x) > 1"),
    (lambda df: df.where(ps.col("x") > 1).limit(3), "limit is new: step 'limit', num_rows 3"),
    (lambda df: df.where(ps.col("x") > 1).select("q"), "columns: x is gone; it was 'int64'"),
    (
        lambda df: df.where(ps.col("x") > 1).select("x", "q"),
        "select is new: step 'select', column 'x' col(x), column 'q' col(q)",
    ),
    (lambda df: df.where(ps.col("x") > 1).with_column("y", ps.col("x") + 1), "columns: y is new: 'int64'"),
    (lambda df: df.where(ps.col("x") > 1).concat(df), "from_pydict is new: name 'from_pydict'"),
]


@pytest.mark.parametrize(("build", "sentence"), STEPS, ids=[sentence for _, sentence in STEPS])
def test_steps_are_named(build: Any, sentence: str) -> None:
    then = rows().where(ps.col("x") > 1)
    found = changes(then, build(rows()))
    assert any(sentence in each for each in found), found


def test_the_order_of_the_columns_that_come_out_counts() -> None:
    sentence = "order of columns changed from ['q', 'x'] to ['x', 'q']"
    then, now = rows().select("q", "x"), rows().select("x", "q")
    assert changes(then, now) == [sentence]
    assert changed_inputs(of(then), of(now)) is None
    assert changes(then.select("q", "x"), now.select("q", "x")) == []
    assert changes(rows().select("q", "x"), rows().select("x", ps.lit(1).alias("y"), "q")) == [
        "select: column 'y' is new: 1 as y",
        "columns: y is new: 'int64'",
        "order of columns changed from ['q', 'x'] to ['x', 'y', 'q']",
    ]


def test_equal_steps_are_matched() -> None:
    def build(first: int, last: int) -> ps.DataFrame:
        return rows().where(ps.col("x") > first).with_column("y", ps.col("x") * 2).where(ps.col("y") < last).limit(9)

    assert changes(build(1, 5), build(1, 6)) == [
        "filter: predicate: expression changed from 'col(y) < 5' to 'col(y) < 6'",
    ]


def test_options_of_steps_and_seeds_count() -> None:
    assert changes(rows().sample(0.5, seed=1), rows().sample(0.5, seed=2)) == ["sample: seed changed from 1 to 2"]


def test_long_constants_count_to_their_end() -> None:
    texts = ["x" * 1000 + end for end in "ab"]
    found = changes(*(rows().with_column("t", ps.lit(text)) for text in texts))
    assert found == ["select: column 't': constants changed"]


def test_expressions_count_to_their_end() -> None:
    def deep(last: int) -> ps.DataFrame:
        expr = ps.col("x")
        for _ in range(300):
            expr = expr + 1
        return rows().select((expr * last).alias("deep"))

    assert changes(deep(2), deep(2)) == []
    assert len(changes(deep(2), deep(3))) == 1


def test_a_write_is_known_by_its_rows(tmp_path: Path) -> None:
    from penstock.io.formats.parquet import ParquetEncoding
    from penstock.io.writer import file_sink

    sinks = [file_sink(tmp_path / name, ParquetEncoding()) for name in "ab"]
    assert [fingerprint(Write(asked()._plan, sink)) for sink in sinks] == [fingerprint(asked()._plan)] * 2


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_input_files_are_named(tmp_path: Path) -> None:
    for name in "abc":
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"{name}.parquet")
    then = of(ps.read_parquet(tmp_path))
    assert changed_inputs(then, of(ps.read_parquet(tmp_path))) == set()
    size = (tmp_path / "a.parquet").stat().st_size
    pq.write_table(pa.table({"x": list(range(1000))}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").unlink()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "d.parquet")
    now = of(ps.read_parquet(tmp_path))
    large = (tmp_path / "a.parquet").stat().st_size
    a, b, d = (str(tmp_path / f"{name}.parquet") for name in "abd")
    changed, gone, new = differences(then, now)
    assert changed.startswith(f"read_parquet: versions: {a} changed from '{size} bytes, modified ")
    assert f" to '{large} bytes, modified " in changed
    assert gone.startswith(f"read_parquet: versions: {b} is gone")
    assert new.startswith(f"read_parquet: versions: {d} is new")
    assert changed_inputs(then, now) == {a, b, d}


def test_a_file_of_the_same_size_is_known_by_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n")
    os.utime(path, ns=(0, 10**18))
    then = of(ps.read_csv(path))
    os.utime(path, ns=(0, 10**18 + 1))
    [sentence] = differences(then, of(ps.read_csv(path)))
    assert "modified 2001-09-09 01:46:40.000000000' to '4 bytes, modified 2001-09-09 01:46:40.000000001'" in sentence


def test_options_and_columns_of_readers_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x;y\n1;2\n")
    then, now = of(ps.read_csv(path, delimiter=";")), of(ps.read_csv(path))
    assert changed_inputs(then, now) is None
    assert "read_csv: options: format: delimiter changed from ';' to ','" in differences(then, now)


def test_many_files_are_counted(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text("a")
    then = of(ps.read_text(tmp_path / "0.txt"))
    found = differences(then, of(ps.read_text(tmp_path)))
    assert len(found) == 21
    assert found[-1] == "and 9 more differences"


def test_rows_in_memory_count_by_content() -> None:
    then, now = of(ps.from_pydict({"x": [1, 2]})), of(ps.from_pydict({"x": [1, 3]}))
    assert differences(then, now) == ["from_pydict: versions: from_pydict changed"]
    assert changed_inputs(then, now) == {"from_pydict"}
    assert differences(then, of(ps.from_pydict({"x": [1, 2, 3]}))) == [
        "from_pydict: versions: from_pydict changed from '2 rows' to '3 rows'"
    ]


def test_a_range_counts() -> None:
    assert changes(ps.range(5), ps.range(6)) == ["range: versions: range changed from 'range(0, 5)' to 'range(0, 6)'"]


def test_files_that_a_later_step_reads_count(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"one")
    then = of(ps.read_binary_files(tmp_path))
    (tmp_path / "a.bin").write_bytes(b"three")
    assert changed_inputs(then, of(ps.read_binary_files(tmp_path))) == {str(tmp_path / "a.bin")}


class Numbers:
    """A source of the user's own, which says nothing of versions."""

    name = "numbers"
    can_filter = False

    def __init__(self, count: int) -> None:
        self.count = count

    def schema(self) -> Schema:
        return Schema.from_pydict({"x": ps.DataType.int64()})

    def read_tasks(self, request: ReadRequest) -> Iterator[Any]:
        yield from ()


class VersionedNumbers(Numbers):
    def versions(self) -> dict[str, str]:
        return {"numbers": f"{self.count} rows"}


@pytest.mark.parametrize("kind", [Numbers, VersionedNumbers])
def test_sources_of_users_count(kind: type[Numbers]) -> None:
    assert isinstance(kind(1), VersionedSource) == (kind is VersionedNumbers)
    then, now = (of(ps.read_source(kind(count))) for count in (1, 2))
    assert changed_inputs(then, then) == set()
    assert changed_inputs(then, now) == {"numbers"}


def test_sql_counts_by_its_query(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (a integer, b integer)")
    url = f"sqlite:///{tmp_path / 'a.db'}"
    then, now = (of(ps.read_sql(f"select {name} as x from t", url)) for name in "ab")
    assert differences(then, now) == [
        "read_sql: options: query changed from 'select a as x from t' to 'select b as x from t'"
    ]


# --- origins of tasks -------------------------------------------------------------------------------------------------


def origins(df: ps.DataFrame) -> list[tuple[str, str]]:
    plan = df._plan
    while not isinstance(plan, Scan):
        (plan,) = plan.children
    return [task.origin for task in plan.source.read_tasks(ReadRequest())]  # type: ignore[attr-defined]


Kind = Literal["parquet", "csv", "json", "text", "numpy", "twice", "memory", "range"]


@pytest.mark.parametrize("kind", Kind.__args__)  # type: ignore[attr-defined]
def test_tasks_are_recognized_by_their_origin(kind: Kind, tmp_path: Path) -> None:
    table = pa.table({"x": list(range(4))})
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
        (tmp_path / f"{name}.jsonl").write_text('{"x": 1}\n')
        (tmp_path / f"{name}.txt").write_text("x\n")
        np.save(tmp_path / f"{name}.npy", np.arange(4))
    twice = [tmp_path / "a.csv", tmp_path / "a.csv", tmp_path / "b.csv"]

    def build() -> ps.DataFrame:
        match kind:
            case "parquet":
                return ps.read_parquet(tmp_path)
            case "csv":
                return ps.read_csv(tmp_path)
            case "json":
                return ps.read_json(tmp_path)
            case "text":
                return ps.read_text(str(tmp_path / "*.txt"))
            case "numpy":
                return ps.read_numpy(tmp_path)
            case "twice":
                return ps.read_csv(twice)
            case "memory":
                return ps.from_arrow(pa.concat_tables([table, table]))
            case "range":
                return ps.range(10_000_000)

    found = origins(build())
    assert found == origins(build())
    assert len(set(found)) == len(found) >= 2
    assert {name for name, _ in found} <= set(of(build())["inputs"][0]["versions"])


def test_a_task_of_several_images_changes_with_one_of_them(tmp_path: Path) -> None:
    from PIL import Image

    for name in "abc":
        Image.new("RGB", (2, 2)).save(tmp_path / f"{name}.png")
    then = origins(ps.read_images(tmp_path))
    assert then == origins(ps.read_images(tmp_path))
    Image.new("RGB", (3, 2)).save(tmp_path / "b.png")
    assert origins(ps.read_images(tmp_path)) != then


SCRIPT = """
import json, sys
import penstock as ps
import pydantic
from penstock.plan.identity.fingerprint import fingerprint
WORDS = {"alpha", "beta", "gamma", "delta"}
class Form(pydantic.BaseModel):
    words: set[str] = WORDS
@ps.func
def known(x: str) -> bool:
    return x in WORDS
@ps.cls
class Model:
    def __init__(self, words): self.words = words
    def __call__(self, x: str) -> bool: return x in self.words
def spread(row):
    return [{**row, "word": word} for word in WORDS]
ps.set_provider("openai", api_key=sys.argv[2], base_url="http://localhost:1/v1")
df = ps.read_csv(sys.argv[1]).with_column("k", known(ps.col("q"))).with_column("m", Model(WORDS)(ps.col("q")))
df = df.where(ps.col("q").is_in(["a", "b"]))
df = df.with_column("a", ps.prompt(ps.col("q"), Form, tool_functions=[len_of := lambda: 1] * 0, model="m"))
df = df.flat_map(spread).limit(5)
print(json.dumps(fingerprint(df.concat(ps.from_pydict({"q": ["a"]}).map(lambda row: row))._plan)))
"""


def test_a_script_has_the_same_fingerprint_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("q\na\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    found = []
    for seed in "12":
        command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "data.csv"), f"sk-secret-{seed}"]
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        found.append(done.stdout)
    assert found[0] == found[1]
    assert differences(json.loads(found[0]), json.loads(found[1])) == []
