"""AI functions of columns: prompts, embeddings and classification."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.ai.option_help import LOCAL, MODEL, documented
from penstock.ai.options import AiOptions, check_labels
from penstock.ai.provider import (
    CALL_OPTIONS,
    Classifier,
    Embedder,
    ImageClassification,
    ImageEmbedding,
    Model,
    ModelTask,
    Prompter,
    Prompting,
    Provider,
    ScoringClassifier,
    TextClassification,
    TextEmbedding,
)
from penstock.ai.registry import find_provider
from penstock.config import get_config
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, method, to_expr
from penstock.expr.kinds import TEXT, Kind
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import API_LOOP, Builtin, Target, UdfSpec
from penstock.types import DataType
from penstock.udf.options import check_whole

if TYPE_CHECKING:
    from penstock.ai.exchange import PromptSettings
    from penstock.ai.identity import Identity

__all__ = ["classify_image", "classify_text", "embed_image", "embed_text", "prompt"]

MAX_API_CALLS = 1024
"""Rows that wait for a remote model concurrently. The limiter of the model decides how many requests are sent."""
MAX_API_BATCHES = 64
API_TASK_ROWS = 64
"""Rows of a task. Its output waits for the slowest row."""
MAX_BATCHED_CALLS = 100_000
"""Rows that wait for a provider's batches concurrently: enough to fill one."""
BATCHED_CALL_NBYTES = 16 * 2**10
"""Upper bound for the memory of a waiting row besides its data; about 9 kB were measured."""
BATCHED_TASK_ROWS = 512
BATCHED_GROWTH = 4
"""Assumed output bytes for each input byte: the input column, the request, and the answer."""


def _is_image(dtype: DataType) -> bool:
    from penstock.ai.messages.message import may_be_image

    return dtype.is_image() or (dtype.is_tensor() and may_be_image(dtype))


IMAGE = Kind("an image", _is_image, "decode it with decode_image()")
LONG_INPUTS = ("truncate", "average")

LOCAL_MODEL = tuple(name for name in LOCAL if name not in ("normalize", "prompt", "prompt_name", "hypothesis_template"))

CLASSIFYING = tuple(name for name in MODEL if name != "top_logprobs")


@method
@documented(Prompting, *MODEL, *LOCAL_MODEL)
def prompt(
    messages: Expression | str | Sequence[Any],
    return_format: Any = None,
    *,
    system_message: Expression | str | None = None,
    provider: str | Provider | None = None,
    model: Expression | str | None = None,
    tool_functions: Sequence[Callable[..., Any]] = (),
    usage: bool = False,
    logprobs: bool = False,
    n: int | None = None,
    max_reasks: int = 1,
    max_tool_rounds: int = 10,
    **options: Any,
) -> Expression:
    """Ask a language model about each row.

    A null message gives null and sends no request. ``model``, ``system_message`` and the options of the model take
    expressions, with one value for each row; a null is the default. See ``docs/PROMPTS.md``.

    >>> server = getfixture("model_server")  # answers with what it is asked
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"q": ["What does the fox say?", None]})
    >>> df.select(prompt(ps.col("q"), model="gpt-5")).to_pydict()
    {'q': ['What does the fox say?', None]}
    """
    from penstock.ai.exchange import PromptSettings
    from penstock.ai.structured.formats import OutputFormat
    from penstock.ai.structured.tools import tool_functions as checked_tools

    if n is not None:
        check_whole("prompt", "n", n, 1)
    check_whole("prompt", "max_reasks", max_reasks, 0)
    check_whole("prompt", "max_tool_rounds", max_tool_rounds, 1)
    options = {**options, **_logprob_options(logprobs, options)}
    given = {"model": model, "system_message": system_message, **options}
    of_rows = {name: value for name, value in given.items() if isinstance(value, Expression)}
    model, system_message = (None if name in of_rows else given[name] for name in ("model", "system_message"))
    options = {name: value for name, value in options.items() if name not in of_rows or name in CALL_OPTIONS}
    if system_message is not None and not isinstance(system_message, str):
        raise InvalidArgumentError(f"prompt: system_message must be a text; got {type(system_message).__name__}.")
    output = None if return_format is None else OutputFormat.of(return_format)
    tools = checked_tools(tool_functions)
    num_answers = n if n is None or n > 1 else None
    identity = {
        "system_message": system_message,
        "return_format": output,
        "tool_functions": tools,
        "n": num_answers,
        "usage": usage or None,
        "max_reasks": max_reasks,
        "max_tool_rounds": max_tool_rounds if tools else None,
        "expressions": tuple(of_rows),
    }
    names = tuple(name for name in of_rows if name not in ("model", "system_message"))
    call = _resolve(Prompting, model, provider, options, {"row_options": names}, identity, "model" in of_rows)
    settings = PromptSettings(
        call.provider,
        system_message,
        output,
        tools,
        num_answers,
        usage,
        max_reasks,
        max_tool_rounds,
        call.options.settings.price,
        is_batch=call.options.settings.batch is not None,
        row_options=tuple(of_rows),
        has_logprobs=logprobs,
    )
    check = functools.partial(_check_messages, row_options=tuple(of_rows))
    return _prompt_column(call, settings, (*_parts(messages), *of_rows.values()), check)


@method
@documented(TextEmbedding, *LOCAL_MODEL, "normalize", "prompt", "prompt_name", "extra_body", "user")
def embed_text(
    text: Expression,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    long_input: Literal["truncate", "average"] = "truncate",
    **options: Any,
) -> Expression:
    """Convert texts to vectors of type ``embedding(float32, d)``.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``). Texts that are too long
    for the model are truncated. With ``long_input="average"`` they are embedded in parts, and the vectors averaged.

    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"t": ["a cat", "a dog"]}).select(embed_text(ps.col("t"), dimensions=8))
    >>> df.schema["t"].dtype
    embedding[float32; 8]
    """
    if dimensions is not None:
        check_whole("embed_text", "dimensions", dimensions, 1)
    if long_input not in LONG_INPUTS:
        raise InvalidArgumentError(f"embed_text: long_input={long_input!r} is not known; use 'truncate' or 'average'.")
    fields = {"dimensions": dimensions, "long_input": long_input}
    return _embedding_column(_resolve(TextEmbedding, model, provider, options, fields), text, TEXT, long_input)


@method
@documented(ImageEmbedding, *LOCAL_MODEL, "normalize")
def embed_image(
    image: Expression,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    **options: Any,
) -> Expression:
    """Convert images to vectors of type ``embedding(float32, d)``.

    >>> import numpy as np
    >>> folder = getfixture("tiny_clip")  # a model on disk
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]})
    >>> df.select(embed_image(ps.col("i"), model=folder)).schema["i"].dtype
    embedding[float32; 10]
    """
    if dimensions is not None:
        check_whole("embed_image", "dimensions", dimensions, 1)
    call = _resolve(ImageEmbedding, model, provider, options, {"dimensions": dimensions})
    return _embedding_column(call, image, IMAGE)


@method
@documented(TextClassification, *LOCAL_MODEL, "hypothesis_template", *CLASSIFYING)
def classify_text(
    text: Expression,
    labels: Sequence[str] | str,
    *,
    scores: bool = False,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Any,
) -> Expression:
    """Pick the best of ``labels`` for each text.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``). A language model gets a
    prompt that asks for a label.

    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"t": ["I love it"]}).select(classify_text(ps.col("t"), ["good", "bad"]))
    >>> df.to_pydict()["t"][0] in ("good", "bad")
    True
    """
    fields = {"labels": check_labels("classify_text", labels)}
    call = _resolve(TextClassification, model, provider, options, fields, {"scores": scores or None})
    return _scored_label_column(call, text) if scores else _label_column(call, text, TEXT, "text")


@method
@documented(ImageClassification, *LOCAL_MODEL, "hypothesis_template", *CLASSIFYING)
def classify_image(
    image: Expression,
    labels: Sequence[str] | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Any,
) -> Expression:
    """Pick the best of ``labels`` for each image.

    >>> import numpy as np
    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]}).select(classify_image(ps.col("i"), ["cat", "dog"]))
    >>> df.to_pydict()["i"][0] in ("cat", "dog")
    True
    """
    call = _resolve(ImageClassification, model, provider, options, {"labels": check_labels("classify_image", labels)})
    return _label_column(call, image, IMAGE, "image")


@dataclass(frozen=True)
class _AiCall:
    """A call of an AI function with its model."""

    task: ModelTask
    model: Model
    provider: str
    options: AiOptions
    identity: Identity

    @property
    def name(self) -> str:
        return self.task.function

    def column(self, target: Target, dtype: DataType, check: Callable[..., None], *args: Any) -> Expression:
        builtin = Builtin(self.identity, check, prepare="prepare" if target.is_async and not target.is_batch else None)
        spec = UdfSpec(self.name, target, dtype, policy=self.options.policy, builtin=builtin)
        return Expression(UdfCall(placed(spec, self.model, self.options), tuple(map(to_expr, args)), ()))


def _resolve(
    task_type: type[ModelTask],
    model: str | None,
    provider: str | Provider | None,
    options: Mapping[str, Any],
    fields: Mapping[str, Any],
    identity: Mapping[str, Any] | None = None,
    has_model_of_row: bool = False,
) -> _AiCall:
    """Return the call with the provider's model for it. ``fields`` are those of the task, and part of the identity."""
    from penstock.ai.identity import identity_of

    function = task_type.function
    for name, value in {"provider": provider, "model": model, **options, **fields}.items():
        if isinstance(value, Expression):
            raise InvalidArgumentError(
                f"{function}: {name} takes one value for all rows; got the expression {value!r}."
            )
    given = AiOptions.of(function, options)
    chosen = find_provider(provider, function)
    given.check_provider(function, chosen)
    task = task_type(model, given.rest, given.settings, **fields)
    found = _model_of_row(chosen, task) if has_model_of_row else chosen.model(task)
    whole = identity_of(function, chosen, found, model, given.rest, **fields, **(identity or {}))
    return _AiCall(task, found, chosen.name, given, whole)


def _model_of_row(provider: Provider, task: ModelTask) -> Model:
    """Return the model that asks the model of each row. The provider makes one of any name to check the options."""
    from penstock.ai.prompt import ModelOfRow

    example = provider.model(replace(task, model=provider.default_models.get(task.function) or "model"))
    is_remote = inspect.iscoroutinefunction(getattr(example, "generate", None)) and example.num_waiting is None
    if not isinstance(example, Prompter) or not is_remote:
        raise InvalidArgumentError(
            f"{task.function}: model takes one value for all rows with provider {provider.name!r}, whose models run on "
            "this machine."
        )
    return ModelOfRow(provider, task, example)


def _logprob_options(logprobs: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option of the model for log-probabilities, if the user asks for them."""
    if not isinstance(logprobs, bool):
        raise InvalidArgumentError(
            f"prompt: logprobs is True or False; got {logprobs!r}. top_logprobs=5 lists the five most likely tokens."
        )
    if (count := options.get("top_logprobs")) is not None:
        if not logprobs:
            raise InvalidArgumentError("prompt: top_logprobs has no effect without logprobs=True.")
        check_whole("prompt", "top_logprobs", count, 0)
    return {"logprobs": True} if logprobs else {}


def _parts(messages: Any) -> tuple[Any, ...]:
    if isinstance(messages, list | tuple):
        if not messages:
            raise InvalidArgumentError("prompt: messages is an empty list; give at least one column or text.")
        return tuple(messages)
    return (messages,)


def _check_messages(*dtypes: DataType, row_options: Sequence[str] = ()) -> None:
    """Check the types of the parts of a message, and of the options that follow them."""
    from penstock.ai.messages.message import check_message_types

    num_parts = len(dtypes) - len(row_options)
    for name, dtype in zip(row_options, dtypes[num_parts:], strict=True):
        if name in ("model", "system_message") and not (dtype.is_string() or dtype.is_null()):
            raise TypeMismatchError(f"prompt: {name} takes text; the expression has type {dtype}.")
    dtypes = dtypes[:num_parts]
    names = ["the message"] if len(dtypes) == 1 else [f"part {number}" for number in range(1, len(dtypes) + 1)]
    check_message_types(zip(names, dtypes, strict=True))


def _prompt_column(
    call: _AiCall, settings: PromptSettings, parts: Sequence[Any], check: Callable[..., None]
) -> Expression:
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
    return call.column(target, settings.dtype, check, *parts)


def _embedding_column(call: _AiCall, column: Any, kind: Kind, long_input: str = "truncate") -> Expression:
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


def _label_column(call: _AiCall, column: Any, kind: Kind, what: str) -> Expression:
    """Return a column of labels, by a classifier, or by a model that answers prompts."""
    from penstock.ai.classify import BatchLabels, instructions

    assert isinstance(call.task, TextClassification | ImageClassification)
    labels = call.task.labels
    if isinstance(call.model, Prompter):
        from penstock.ai.exchange import PromptSettings
        from penstock.ai.structured.formats import OutputFormat

        settings = PromptSettings(call.provider, instructions(labels, what), OutputFormat.of(Literal[labels]))
        return _prompt_column(call, settings, (column,), kind.check)
    if not isinstance(call.model, Classifier):
        raise InvalidArgumentError(f"{call.name} needs a model that picks labels; got {type(call.model).__name__}.")
    target = Target(BatchLabels, "classify", (call.model, labels), is_batch=True)
    return call.column(target, DataType.string(), kind.check, column)


def _scored_label_column(call: _AiCall, column: Any) -> Expression:
    from penstock.ai.classify import BatchScores, scored_label

    if not isinstance(call.model, ScoringClassifier):
        raise InvalidArgumentError(
            f"{call.name}: scores=True needs a classifier, such as those of provider 'transformers'; provider "
            f"{call.provider!r} gives labels alone. Leave it out, or use prompt with logprobs=True."
        )
    target = Target(BatchScores, "classify", (call.model,), is_batch=True)
    return call.column(target, scored_label(call.model.labels), TEXT.check, column)


def placed(spec: UdfSpec, model: Model, options: AiOptions) -> UdfSpec:
    """Return a spec with its place: remote models run on one event loop, others in workers of their own."""
    max_concurrency, is_batch = options.settings.caps.max_concurrency, spec.target.is_batch
    if not spec.target.is_async:
        options.check_local(spec.name, type(model).__name__)
        resources = model.resources
        if max_concurrency is not None:
            resources = replace(resources, max_workers=max_concurrency)
        if resources.tasks_per_worker > 1:  # the handlers of a worker share one model
            spec = replace(spec, target=replace(spec.target, owner=uuid.uuid4().hex))
        builtin = replace(spec.builtin, first_rows=model.first_rows, max_rows=model.max_rows)
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
    """Return a spec in which enough rows wait concurrently to fill a provider's batch."""
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
