"""Columns of model calls: find the model of an AI function, build the call, and choose where it runs."""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.ai.options import AiOptions
from penstock.ai.provider import (
    Classifier,
    Embedder,
    ImageClassification,
    Model,
    ModelTask,
    Prompter,
    Provider,
    Reranker,
    ScoringClassifier,
    TextClassification,
)
from penstock.ai.provider_registry import find_provider
from penstock.config import get_config
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, to_expr
from penstock.expr.kinds import TEXT, Kind
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import API_LOOP, Builtin, Target, UdfSpec
from penstock.types import DataType

if TYPE_CHECKING:
    from penstock.ai.dialogue import PromptSettings
    from penstock.ai.identity import Identity

MAX_API_CALLS = 1024
"""Rows that wait for a remote model concurrently. The limiter of the model decides how many requests are sent."""
MAX_API_BATCHES = 64
API_TASK_ROWS = 64
"""Rows of the first tasks. The output of a task waits for its slowest row."""
MAX_BATCHED_CALLS = 100_000
"""Rows that wait for a provider's batches concurrently: enough to fill one."""
BATCHED_CALL_NBYTES = 16 * 2**10
"""Upper bound for the memory of a waiting row besides its data; about 9 kB were measured."""
BATCHED_TASK_ROWS = 512
BATCHED_GROWTH = 4
"""Assumed output bytes for each input byte: the input column, the request, and the answer."""


@dataclass(frozen=True)
class AiCall:
    """A call of an AI function with its model."""

    task: ModelTask
    model: Model
    provider: str
    options: AiOptions
    identity: Identity

    @property
    def name(self) -> str:
        return self.task.function

    def column(
        self,
        target: Target,
        dtype: DataType,
        check: Callable[..., None],
        *args: Any,
        row_options: tuple[str, ...] = (),
    ) -> Expression:
        builtin = Builtin(
            self.identity,
            check,
            has_lookup=target.is_async and not target.is_batch,
            model=None if "model" in row_options else dict(self.identity).get("model"),
            row_options=row_options,
        )
        spec = UdfSpec(self.name, target, dtype, policy=self.options.policy, builtin=builtin)
        return Expression(UdfCall(placed(spec, self.model, self.options), tuple(map(to_expr, args)), ()))


def resolve_call(
    task_type: type[ModelTask],
    model: str | None,
    provider: str | Provider | None,
    options: Mapping[str, Any],
    fields: Mapping[str, Any],
    identity: Mapping[str, Any] | None = None,
    has_model_of_row: bool = False,
) -> AiCall:
    """Return the call with the provider's model for it. ``fields`` are fields of the task, and part of its identity."""
    from penstock.ai.identity import identity_of

    function = task_type.function
    for name, value in {"provider": provider, "model": model, **options, **fields}.items():
        if isinstance(value, Expression):
            raise InvalidArgumentError(
                f"{function}: {name} takes one value for all rows; got the expression {value!r}."
            )
    model = _checked_model(function, model)
    given = AiOptions.of(function, options)
    chosen = find_provider(provider, function)
    given = given.of_provider(function, chosen)
    task = task_type(model, given.rest, given.settings, **fields)
    found = _model_of_row(chosen, task) if has_model_of_row else chosen.model(task)
    whole = identity_of(function, chosen, found, model, given.rest, **fields, **(identity or {}))
    return AiCall(task, found, chosen.name, given, whole)


def _checked_model(function: str, model: Any) -> str | None:
    if model is None or isinstance(model, str | os.PathLike):
        return None if model is None else os.fspath(model)
    takes = "the name of one model, or an expression with a name for each row" if function == "prompt" else "one name"
    raise InvalidArgumentError(
        f"{function}: model={model!r} is not the name of a model; model= takes {takes}. To compare models, "
        "add a column for each."
    )


def _model_of_row(provider: Provider, task: ModelTask) -> Model:
    """Return a model that calls the model that each row names. The provider makes one now, to check the options."""
    from penstock.ai.prompt import ModelOfRow

    example = provider.model(replace(task, model=provider.default_models.get(task.function) or "model"))
    is_remote = inspect.iscoroutinefunction(getattr(example, "generate", None)) and example.num_waiting is None
    if not isinstance(example, Prompter) or not is_remote:
        raise InvalidArgumentError(
            f"{task.function}: model takes one value for all rows with provider {provider.name!r}, whose models run on "
            "this machine."
        )
    return ModelOfRow(provider, task, example)


def prompt_column(
    call: AiCall, settings: PromptSettings, parts: Sequence[Any], check: Callable[..., None]
) -> Expression:
    """Return a column of answers to ``parts``, the parts of a message and the options that are expressions."""
    from penstock.ai.prompt import AsyncPrompts, BatchPrompts

    model = call.model
    if not isinstance(model, Prompter):
        raise InvalidArgumentError(f"{call.name} needs a model that answers prompts; got {type(model).__name__}.")
    if settings.tools and not model.takes_tools:
        raise InvalidArgumentError(
            f"{call.name}: models of provider {call.provider!r} cannot call tool_functions; use another provider, such "
            "as 'openai', or leave them out."
        )
    if settings.row_options and not model.takes_options and set(settings.row_options) != {"system_message"}:
        raise InvalidArgumentError(
            f"{call.name}: models of provider {call.provider!r} take one value of each option for all rows; "
            f"{', '.join(settings.row_options)} cannot be expressions."
        )
    is_async = inspect.iscoroutinefunction(model.generate)
    function = AsyncPrompts if is_async else BatchPrompts
    target = Target(function, "answer", (model, settings), is_batch=not is_async, is_async=is_async)
    return call.column(target, settings.dtype, check, *parts, row_options=settings.row_options)


def embedding_column(call: AiCall, column: Any, kind: Kind, long_input: str = "truncate") -> Expression:
    from penstock.ai.embed import BatchEmbeddings, PackedEmbeddings

    model = call.model
    if not isinstance(model, Embedder):
        raise InvalidArgumentError(f"{call.name} needs a model that gives vectors; got {type(model).__name__}.")
    if inspect.iscoroutinefunction(model.embed):
        target = Target(PackedEmbeddings, "embed", (model, long_input), is_batch=True, is_async=True)
    else:
        target = Target(BatchEmbeddings, "embed", (model,), is_batch=True)
    dtype = DataType.embedding(DataType.float32(), model.dimensions)
    return call.column(target, dtype, kind.check, column)


def label_column(call: AiCall, column: Any, kind: Kind, what: str) -> Expression:
    """Return a column of labels, by a classifier, or by a model that answers prompts."""
    from penstock.ai.classify import BatchLabels, instructions

    assert isinstance(call.task, TextClassification | ImageClassification)
    labels = call.task.labels
    if isinstance(call.model, Prompter):
        from penstock.ai.dialogue import PromptSettings
        from penstock.ai.structured.return_formats import OutputFormat

        settings = PromptSettings(call.provider, instructions(labels, what), OutputFormat.of(Literal[labels]))
        return prompt_column(call, settings, (column,), kind.check)
    if not isinstance(call.model, Classifier):
        raise InvalidArgumentError(f"{call.name} needs a model that picks labels; got {type(call.model).__name__}.")
    target = Target(BatchLabels, "classify", (call.model, labels), is_batch=True)
    return call.column(target, DataType.string(), kind.check, column)


def scored_label_column(call: AiCall, column: Any) -> Expression:
    from penstock.ai.classify import BatchScores, scored_label

    if not isinstance(call.model, ScoringClassifier):
        raise InvalidArgumentError(
            f"{call.name}: scores=True needs a classifier, such as a model of provider 'transformers'; provider "
            f"{call.provider!r} gives labels alone. Leave it out, or use prompt with logprobs=True."
        )
    target = Target(BatchScores, "classify", (call.model,), is_batch=True)
    return call.column(target, scored_label(call.model.labels), TEXT.check, column)


def relevance_column(call: AiCall, query: Any, text: Any) -> Expression:
    from penstock.ai.rerank import BatchRelevance

    if not isinstance(call.model, Reranker):
        raise InvalidArgumentError(f"{call.name} needs a reranker; got {type(call.model).__name__}.")
    target = Target(BatchRelevance, "score", (call.model,), is_batch=True)
    return call.column(target, DataType.float64(), check_texts, query, text)


def check_texts(*dtypes: DataType) -> None:
    for dtype in dtypes:
        TEXT.check(dtype)


def placed(spec: UdfSpec, model: Model, options: AiOptions) -> UdfSpec:
    """Return a spec that says where it runs: remote models on one event loop, others in workers of their own."""
    max_concurrency, is_batch = options.settings.caps.max_concurrency, spec.target.is_batch
    if not spec.target.is_async:
        options.check_local(spec.name, type(model).__name__)
        resources = model.resources
        if max_concurrency is not None:
            resources = replace(resources, max_workers=max_concurrency)
        if resources.tasks_per_worker > 1:  # the handlers of a worker share one model
            spec = replace(spec, target=replace(spec.target, owner=uuid.uuid4().hex))
        builtin = replace(spec.builtin, first_rows=model.first_rows, max_rows=model.max_rows, note=model.note)
        return replace(spec, resources=resources, batch_size=model.batch_size, builtin=builtin)
    if options.settings.batch is not None:
        return _placed_for_batches(spec, model)
    if model.num_waiting is not None:  # an engine in this process, which limits the requests that it works on
        options.check_local(spec.name, type(model).__name__)
        num_calls = model.num_waiting
        spec = replace(spec, builtin=replace(spec.builtin, initial_growth=BATCHED_GROWTH))
    else:
        limit = MAX_API_BATCHES if is_batch else MAX_API_CALLS
        num_calls = min(max_concurrency or limit, limit)
    event_loop, task_rows = model.event_loop or API_LOOP, None if is_batch else API_TASK_ROWS
    return replace(
        spec,
        resources=replace(model.resources, max_workers=num_calls),
        builtin=replace(spec.builtin, event_loop=event_loop, task_rows=task_rows),
        batch_size=model.max_items if isinstance(model, Embedder) else "auto",
    )


def _placed_for_batches(spec: UdfSpec, model: Model) -> UdfSpec:
    """Return a spec with enough concurrently waiting rows to fill a provider's batch."""
    is_batch = spec.target.is_batch
    max_rows = max(BATCHED_TASK_ROWS, get_config().memory_bytes // BATCHED_CALL_NBYTES)
    num_rows = min(MAX_BATCHED_CALLS, max_rows)
    return replace(
        spec,
        resources=replace(model.resources, max_workers=-(-num_rows // BATCHED_TASK_ROWS) if is_batch else num_rows),
        batch_size=BATCHED_TASK_ROWS if is_batch else "auto",
        builtin=replace(
            spec.builtin,
            event_loop=API_LOOP,
            task_rows=None if is_batch else BATCHED_TASK_ROWS,
            initial_growth=BATCHED_GROWTH,
            is_batched=True,
        ),
    )
