"""A plain text of an AI function is a template: ``{name}`` stands for a column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.compat import daft
from penstock.errors import ColumnNotFoundError, InvalidArgumentError
from penstock.testing import ModelServer


@pytest.fixture(autouse=True)
def provider(model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"name": ["Ada", None], "age": [36, 1]})


def answers(df: ps.DataFrame, *args: Any, **options: Any) -> Any:
    """Return the answers of a model that repeats what it is asked."""
    return df.select(a=ps.prompt(*args, model="gpt-5", **options)).to_pydict()["a"]


def test_a_message_is_filled_with_the_columns_of_a_row(df: ps.DataFrame) -> None:
    assert answers(df, "{name} is {age}; as JSON: {{}}") == ["Ada is 36; as JSON: {}", None]


def test_texts_in_a_list_of_parts_are_sent_as_they_are(df: ps.DataFrame) -> None:
    said = answers(df, ["Braces {name} stay.", ps.col("age")])[0]
    assert "Braces {name} stay." in said
    assert "36" in said


def test_a_system_message_is_a_template(df: ps.DataFrame, model_server: ModelServer) -> None:
    def sent(system: str) -> set[str]:
        before = len(model_server.requests)
        answers(df, "{age}", system_message=system)
        return {
            request.body["instructions"] for request in model_server.requests[before:] if "instructions" in request.body
        }

    assert sent("You are {name}.") == {"You are Ada."}
    assert sent("Answer {{}}.") == {"Answer {}."}


def test_embeddings_and_labels_of_a_template(df: ps.DataFrame, model_server: ModelServer) -> None:
    vectors = df.select(v=ps.embed_text("{name}, {age}", dimensions=8)).to_pydict()["v"]
    assert len(vectors[0]) == 8
    assert vectors[1] is None
    assert model_server.requests[-1].body["input"] == ["Ada, 36"]
    labels = df.select(label=ps.classify_text("{name}, {age}", ["a", "b"], model="gpt-5")).to_pydict()["label"]
    assert labels[0] in ("a", "b")
    assert labels[1] is None


@pytest.mark.parametrize(
    "column",
    [
        lambda: ps.prompt("Tell me a joke", model="gpt-5"),
        lambda: ps.embed_text("name"),
        lambda: ps.classify_text("name", ["a"]),
    ],
)
def test_a_text_without_a_column_is_refused(column: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"names no column.*ps\.lit"):
        column()


def test_the_same_question_for_every_row_if_that_is_meant(df: ps.DataFrame) -> None:
    assert answers(df, ps.lit("Tell me a joke")) == ["Tell me a joke"] * 2
    assert len(set(map(tuple, df.select(v=ps.embed_text(ps.lit("x"), dimensions=2)).to_pydict()["v"]))) == 1


def test_a_missing_column_is_an_error_on_the_line(df: ps.DataFrame) -> None:
    with pytest.raises(ColumnNotFoundError, match=r'\'nam\' not found in format\("Hi \{nam\}".*braces.*mean \'name\''):
        df.with_column("a", ps.prompt("Hi {nam}", model="gpt-5"))


@pytest.mark.parametrize("text", ['Fill {"a": 1}', "half { open", "{age:.2f}", "{age!r}", '{"a": {age}}'])
def test_braces_that_name_no_column_say_how_to_write_them(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"prompt: .*not a template.*write \{\{ and \}\}"):
        ps.prompt(text, model="gpt-5")


def test_a_field_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="needs the name of a column"):
        ps.prompt("Summarise {}", model="gpt-5")


def test_templates_in_sql(df: ps.DataFrame) -> None:
    asked = "select prompt('{name} is {age}', model := 'gpt-5', system_message := 'You are {name}') as a from df"
    assert ps.sql(asked).to_pydict() == {"a": ["Ada is 36", None]}
    asked = "select prompt('age ' || age, model := 'gpt-5') as a, embed_text('{age}', dimensions := 4) as v from df"
    found = ps.sql(asked + " where age > 1").to_pydict()
    assert found["a"] == ["age 36"]
    assert len(found["v"][0]) == 4
    with pytest.raises(Exception, match="nam"):
        ps.sql("select prompt('{nam}', model := 'gpt-5') as a from df").to_pydict()
    assert df.select(ps.sql_expr("prompt('Hi {name}', model := 'gpt-5') as a")).to_pydict() == {"a": ["Hi Ada", None]}


def test_in_daft_a_text_is_sent_as_it_is() -> None:
    df = daft.from_pydict({"name": ["Ada"]})
    call = daft.functions.prompt("Braces {name}", model="gpt-5", system_message="{}")
    assert df.select(call.alias("a")).to_pydict() == {"a": ["Braces {name}"]}


def test_templates_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.cli.app import main

    table, out = str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")
    ps.from_pydict({"name": ["Ada"], "age": [36]}).write_json(table)
    assert main(["prompt", table, "--prompt", "{name} is {age}", "-m", "gpt-5", "-o", out]) == 0
    assert ps.read_json(out).to_pydict()["answer"] == ["Ada is 36"]
    vectors = str(tmp_path / "vectors")
    assert (
        main(["embed", table, "--text", "{name}, {age}", "-p", "openai", "--option", "dimensions=4", "-o", vectors])
        == 0
    )
    assert len(ps.read_parquet(vectors).to_pydict()["embedding"][0]) == 4
    assert main(["prompt", table, "--prompt", "Hello", "-m", "gpt-5"]) == 2
    assert "names no column" in capsys.readouterr().err
    assert main(["embed", table, "-p", "openai"]) == 2
    assert "Give --column, or --text" in capsys.readouterr().err
