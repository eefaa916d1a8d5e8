"""``penstock prompt``, ``embed``, ``classify`` and ``cost``: run a model over the rows of a table."""

from __future__ import annotations

import dataclasses
import json as jsonlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import AsJson, app, print_json
from penstock.cli.groups import with_groups
from penstock.cli.inputs import TableInput
from penstock.cli.results import TableOutput, write_and_report
from penstock.errors import InvalidArgumentError

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame


@dataclass
class ModelChoice:
    """The model, and the options of its calls."""

    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="The model.")] = None
    provider: Annotated[
        str | None,
        typer.Option("--provider", "-p", metavar="NAME", help="openai, anthropic, google, transformers, ..."),
    ] = None
    base_url: Annotated[str | None, typer.Option(metavar="URL", help="The address of a compatible server.")] = None
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another option, such as temperature=0; may be repeated."),
    ] = None
    on_error: Annotated[
        str,
        typer.Option(
            metavar="raise|null|log|ignore", help="If a row fails: raise ends the run, the others record it and go on."
        ),
    ] = "raise"

    def options(self) -> dict[str, Any]:
        """Return the options for a function of ``penstock.functions``."""
        import penstock as ps

        if self.base_url is not None:
            ps.set_provider(self.provider or "openai", base_url=self.base_url)
        given = {"model": self.model, "provider": self.provider}
        chosen = {name: value for name, value in given.items() if value is not None}
        return {**chosen, "on_error": self.on_error, **dict(map(_named_value, self.option or ()))}


@dataclass
class PromptText:
    """The question, and the format of its answer."""

    column: Annotated[
        str | None,
        typer.Option("--column", "-c", metavar="NAME", help="The column to send, after the prompt if that lacks it."),
    ] = None
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text to send; {name} stands for a column.")
    ] = None
    prompt_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the text to send.")] = None
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Instructions for the model; {name} stands for a column.")
    ] = None
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the JSON schema that answers must match.")
    ] = None
    usage: Annotated[bool, typer.Option("--usage", help="Add tokens, cost and latency to each answer.")] = False

    def answered(self, rows: DataFrame, name: str, model: ModelChoice) -> DataFrame:
        import penstock as ps

        template = self.prompt if self.prompt_file is None else _content(self.prompt_file).removesuffix("\n")
        if (template is None and self.column is None) or None not in (self.prompt, self.prompt_file):
            raise InvalidArgumentError("Give --prompt or --prompt-file, --column, or both")
        parts: list[Any] = [] if template is None else [_filled(template, is_alone=self.column is None)]
        if self.column is not None and f"{{{self.column}}}" not in (template or ""):
            parts.append(ps.col(self.column))
        schema = None if self.schema is None else _json_schema(self.schema)
        _check_columns(rows, *parts)
        answer = ps.prompt(parts, schema, system_message=self.system, usage=self.usage, **model.options())
        return rows.with_column(name, answer)


@dataclass
class Texts:
    """Options of the texts that a model gets."""

    column: Annotated[str | None, typer.Option("--column", "-c", metavar="NAME", help="The column of texts.")] = None
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A text made of columns, such as 'Title: {title}. {body}'.")
    ] = None

    def of(self, rows: DataFrame) -> Any:
        """Return the texts as an expression; a wrong column is an error before a missing key."""
        import penstock as ps

        match self.column, self.text:
            case str(name), None:
                texts = ps.col(name)
            case None, str(template):
                texts = _filled(template)
            case _:
                raise InvalidArgumentError("Give --column, or --text with a template such as 'Title: {title}'")
        _check_columns(rows, texts)
        return texts


@app.command()
@with_groups
def prompt(
    table: TableInput,
    text: PromptText,
    model: ModelChoice,
    result: TableOutput,
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The name of the new column.")] = "answer",
    json: AsJson = False,
) -> None:
    """Ask a language model about each row.

    \b
    penstock prompt reviews.parquet --prompt "Summarise: {text}" -m gpt-5-mini -o out/ --resume --budget 5
    penstock prompt questions.jsonl -c question -m gpt-5-mini --schema answer.json | head -3
    """
    write_and_report(text.answered(table.rows(), name, model), result, json)


@app.command()
@with_groups
def embed(
    table: TableInput,
    text: Texts,
    model: ModelChoice,
    result: TableOutput,
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The name of the new column.")] = "embedding",
    json: AsJson = False,
) -> None:
    """Turn each text of a column into a vector.

    \b
    penstock embed reviews.parquet -c text -o vectors/
    penstock embed reviews.parquet --text "Title: {title}. {body}" -o vectors/
    penstock embed reviews.parquet -c text -p openai -m text-embedding-3-small --option dimensions=256 -o vectors/
    """
    import penstock as ps

    rows = table.rows()
    write_and_report(rows.with_column(name, ps.embed_text(text.of(rows), **model.options())), result, json)


@app.command()
@with_groups
def classify(
    table: TableInput,
    text: Texts,
    label: Annotated[
        list[str], typer.Option("--label", "-l", metavar="TEXT", help="A label to choose from; repeat it.")
    ],
    model: ModelChoice,
    result: TableOutput,
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The name of the new column.")] = "label",
    json: AsJson = False,
) -> None:
    """Choose one of some labels for each text of a column.

    \b
    penstock classify reviews.jsonl -c text -l praise -l complaint -o labelled/
    """
    import penstock as ps

    rows = table.rows()
    labels = ps.classify_text(text.of(rows), label, **model.options())
    write_and_report(rows.with_column(name, labels), result, json)


@app.command()
@with_groups
def cost(
    table: TableInput,
    text: PromptText,
    model: ModelChoice,
    sample: Annotated[int, typer.Option(metavar="N", help="The number of rows to ask about.")] = 20,
    json: AsJson = False,
) -> None:
    """Estimate the cost of a prompt from a sample of the rows.

    \b
    penstock cost reviews.parquet --prompt "Summarise: {text}" -m gpt-5-mini
    """
    estimate = text.answered(table.rows(), "answer", model).estimate_cost(sample)
    if json:
        print_json(dataclasses.asdict(estimate))
    else:
        print(estimate)


def _filled(template: str, is_alone: bool = True) -> Any:
    """Return the expression of a template; a template that ``is_alone`` must name a column."""
    import penstock as ps
    from penstock.expr.templates import split_template

    if is_alone and not split_template("The text", template)[1]:
        raise InvalidArgumentError(
            f"{template!r} names no column, so it is the same for every row: write {{name}} for one, or add --column"
        )
    return ps.format(template)


def _check_columns(rows: DataFrame, *texts: Any) -> None:
    rows.select(*(text.alias(str(number)) for number, text in enumerate(texts)))


def _named_value(given: str) -> tuple[str, Any]:
    """Return the name and the value of an option; a value that is not JSON is a text.

    >>> _named_value("temperature=0.5"), _named_value("stop=END")
    (('temperature', 0.5), ('stop', 'END'))
    """
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise InvalidArgumentError(f"--option {given!r} must have the form NAME=VALUE")
    try:
        return name, jsonlib.loads(value)
    except ValueError:
        return name, value


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise InvalidArgumentError(f"Cannot read {str(path)!r}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise InvalidArgumentError(f"Cannot read {str(path)!r}, which is not a text in UTF-8: {exc}") from None


def _json_schema(path: Path) -> dict[str, Any]:
    try:
        found = jsonlib.loads(_content(path))
    except ValueError as exc:
        raise InvalidArgumentError(f"The file {str(path)!r} is not a JSON schema: {exc}") from None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"The file {str(path)!r} is not a JSON schema, which is an object {{...}}")
    return found
