"""Edited prompts, asked about a few rows: the new answers stand beside the answers of the run.

This process makes the calls, with its own providers and their keys, and pays for them on an account of its own. It asks
no other address than the run did: the folder of a job, which others may write to, must not choose who gets a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.ai.provider_registry import find_provider
from penstock.ai.providers.remote_provider import RemoteProvider
from penstock.cache.ledger.open_ledgers import job_ledger
from penstock.config import config
from penstock.cost.budget import spending
from penstock.cost.prices import price_of
from penstock.dashboard.live import dollars_of
from penstock.dashboard.row_pages.cells import ALONE, cells_of
from penstock.dashboard.row_pages.found_rows import FoundRows
from penstock.dashboard.row_pages.prompts import PromptTemplate
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col, lit
from penstock.expr.nodes import Call, ColumnRef, Expr, Literal, unalias
from penstock.expr.templates import filled, split_template
from penstock.frame.read.memory import from_arrow
from penstock.functions.ai import prompt

MAX_ROWS = 20
BATCH_API_FACTOR = 2  # calls outside of a batch cost twice as much
API_OPTIONS = {  # which of its APIs a provider uses
    "chat": {"use_chat_completions": True},
    "responses": {"use_chat_completions": False},
    "completions": {"use_completions": True},
}
NOT_RECORDED = (
    "This prompt cannot be asked from here. It calls tools, gives several answers, has a model for each row, or its "
    "model runs on the machine of the query: change it in the program, and try it with df.limit(20)."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A prompt that a person has edited, and its highest cost; None if the price is unknown."""

    column: str
    system: str
    parts: tuple[str, ...]
    max_dollars: float | None

    @staticmethod
    def of(asked: Mapping[str, Any]) -> Trial:
        most = asked.get("max_dollars")
        parts = tuple(map(str, asked["parts"]))
        max_dollars = None if most is None else dollars_of(most, "The maximum")
        return Trial(str(asked["column"]), str(asked["system"]), parts, max_dollars)


class PromptTexts:
    """The texts of a prompt: ``{name}`` stands for a column, ``{part 1}`` for an expression that stays as it is."""

    def __init__(self, template: PromptTemplate) -> None:
        self.computed: dict[str, Expr] = {}
        num_parts = len(template.parts) - len(template.row_options)
        self.options = dict(zip(template.row_options, template.parts[num_parts:], strict=True))
        system = self.options.pop("system_message", None)
        self.system = _escaped(template.system or "") if system is None else self._text(system)
        self.parts = list(map(self._text, template.parts[:num_parts]))

    def _text(self, part: Expr) -> str:
        match unalias(part):
            case Literal(scalar) if isinstance(text := scalar.as_py(), str):
                return _escaped(text)
            case ColumnRef(name) if _is_field(name):
                return f"{{{name}}}"
            case Call("format", args, options):
                first, *others = map(_escaped, dict(options)["texts"])
                return first + "".join(self._text(arg) + text for arg, text in zip(args, others, strict=True))
            case computed:
                name = f"part {len(self.computed) + 1}"
                self.computed[name] = computed
                return f"{{{name}}}"

    def filled(self, text: str) -> Expression:
        """Return the expression of an edited text."""
        texts, fields = split_template("The prompt", text)
        columns = [Expression(self.computed[name]) if name in self.computed else col(name) for name in fields]
        if not columns:
            return lit(texts[0])
        return columns[0] if texts == ["", ""] else filled(texts, columns)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _is_field(name: str) -> bool:
    try:
        return split_template("The prompt", f"{{{name}}}") == (["", ""], [name])
    except InvalidArgumentError:
        return False


def editable_prompts(prompts: Mapping[str, PromptTemplate], run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompts of a run as JSON values, with their texts and the usual cost of a call."""
    return [_editable(column, template, run["models"]) for column, template in prompts.items()]


def _editable(column: str, template: PromptTemplate, models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if template.calls is None:
        return {"column": column, "problem": NOT_RECORDED}
    texts, calls = PromptTexts(template), template.calls
    provider, model = calls["provider"], calls["fields"][0]
    usual = [
        each["dollars"] / each["num_calls"] * (BATCH_API_FACTOR if calls["is_batch"] else 1)
        for each in models
        if (each["provider"], each["model"]) == (provider, model) and each["num_calls"] and each["dollars"] is not None
    ]
    return {
        "column": column,
        "problem": "",
        "system": texts.system,
        "parts": texts.parts,
        "computed": {name: str(Expression(expr)) for name, expr in texts.computed.items()},
        "provider": provider,
        "model": model,
        "base_url": calls["base_url"],
        "dollars_per_call": usual[0] if usual else None,
        "has_price": bool(calls["price"]) or price_of(provider, model) is not None,
        "max_rows": MAX_ROWS,
    }


def run_trial(
    prompts: Mapping[str, PromptTemplate], trial: Trial, found: FoundRows | None, ledger_folder: Path | None
) -> dict[str, Any]:
    """Ask an edited prompt about rows. Return the answers beside the answers of the run, as JSON values.

    The ledger of the job, if its folder is given, keeps the answers: asking the same again costs nothing.
    """
    if found is None or not 0 < len(found.numbers) <= MAX_ROWS:
        raise InvalidArgumentError(f"Choose between 1 and {MAX_ROWS} rows.")
    answers = edited_prompt(prompts[trial.column], trial)
    rows = from_arrow(pa.Table.from_batches([found.batch]))
    with ExitStack() as context:
        context.enter_context(config(progress=False, dashboard=False))
        account = context.enter_context(spending(trial.max_dollars))
        if ledger_folder is not None:
            context.enter_context(job_ledger(ledger_folder))
        answered = rows.select(answers.alias("answer")).collect()
        table = answered.to_arrow().combine_chunks()
        failed = {each["row"]: each for each in answered.errors().to_pylist()}
    names = found.batch.schema.names
    before = found.batch.column(trial.column) if trial.column in names else pa.nulls(len(found.numbers), pa.string())
    columns = cells_of(before, ALONE), cells_of(table.column("answer").chunk(0), ALONE)
    return {
        "rows": [
            {
                "number": number,
                "row": None if place is None else place.number,
                "source": None if place is None else place.input,
                "before": old,
                "after": new,
                "error": None if (error := failed.get(row)) is None else f"{error['error_type']}: {error['message']}",
            }
            for row, (number, place, old, new) in enumerate(zip(found.numbers, found.places, *columns, strict=True))
        ],
        "num_calls": account.num_calls,
        "dollars": account.dollars,
    }


def edited_prompt(template: PromptTemplate, trial: Trial) -> Expression:
    """Return the calls of a recorded prompt with other texts. Refuse if this process would ask another address."""
    if (calls := template.calls) is None:
        raise InvalidArgumentError(NOT_RECORDED)
    if not any(part.strip() for part in trial.parts):
        raise InvalidArgumentError("The prompt is empty.")
    if not any(split_template("The prompt", text)[1] for text in (*trial.parts, trial.system)):
        raise InvalidArgumentError(
            "The prompt names no column, so it asks the same question for every row; write {name} for a column."
        )
    texts, provider = PromptTexts(template), find_provider(calls["provider"], "prompt")
    _, body, extra_body, *_ = calls["fields"]
    options: dict[str, Any] = {name: Expression(expr) for name, expr in texts.options.items()}
    options |= API_OPTIONS.get(calls["wire"], {}) | ({} if calls["price"] is None else {"price": calls["price"]})
    answers = prompt(
        list(map(texts.filled, trial.parts)),
        template.schema,
        system_message=texts.filled(trial.system) if split_template("The prompt", trial.system)[1] else trial.system,
        provider=provider,
        model=calls["fields"][0],
        usage=True,
        on_error="ignore",
        extra_body={**body, **extra_body},
        **options,
    )
    made = PromptTemplate.of(answers._node)
    if made is None or made.calls is None or made.calls["base_url"] != calls["base_url"]:
        variable = provider.url_variable if isinstance(provider, RemoteProvider) else None
        advice = f"start the dashboard with {variable}={calls['base_url']}" if variable else "try it in the program"
        raise InvalidArgumentError(
            f"The run asked {provider.name!r} at {calls['base_url']}, and this process knows it at another address: "
            f"{advice}."
        )
    return answers
