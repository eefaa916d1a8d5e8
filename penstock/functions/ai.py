"""Models as functions of columns: they answer prompts, give vectors, pick labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.ai.options import AiOptions, check_labels
from penstock.ai.provider import (
    Classifier,
    Embedder,
    ImageClassification,
    ImageEmbedding,
    Model,
    Prompter,
    Prompting,
    Provider,
    TextClassification,
    TextEmbedding,
)
from penstock.ai.registry import find_provider
from penstock.config import get_config
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, method, to_expr
from penstock.expr.kinds import TEXT, Kind
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import Builtin, Target, UdfSpec
from penstock.types import DataType
from penstock.udf.options import check_whole

if TYPE_CHECKING:
    from penstock.ai.identity import Told
    from penstock.ai.prompt import PromptForm

__all__ = ["classify_image", "classify_text", "embed_image", "embed_text", "prompt"]

API_LOOP = "penstock.ai"
API_CALLS_AT_ONCE = 1024
"""Rows that wait for a remote model at once; the limiter of the model lets as many through as it bears."""
API_BATCHES_AT_ONCE = 64
API_TASK_ROWS = 64
"""Rows that are passed on together: a task waits for its slowest row."""
BATCHED_CALLS_AT_ONCE = 100_000
"""Rows that wait at once for batches of a provider: as many as fill one."""
BATCHED_CALL_NBYTES = 16 * 2**10
"""What a row that waits takes of ``memory_limit`` besides its data, at most: about 9 kB were measured."""
BATCHED_TASK_ROWS = 512
BATCHED_GROWTH = 4
"""What a byte is taken to become at first: it stays in its column, stands in the request, and is answered."""


def _is_image(dtype: DataType) -> bool:
    from penstock.ai.messages.message import may_be_image

    return dtype.is_image() or (dtype.is_tensor() and may_be_image(dtype))


IMAGE = Kind("an image", _is_image, "decode it with decode_image()")
LONG_INPUTS = ("truncate", "average")


@method
def prompt(
    messages: Expression | str | Sequence[Any],
    return_format: Any = None,
    *,
    system_message: str | None = None,
    provider: str | Provider | None = None,
    model: str | None = None,
    tool_functions: Sequence[Callable[..., Any]] = (),
    usage: bool = False,
    n: int | None = None,
    max_reasks: int = 1,
    max_tool_rounds: int = 10,
    **options: Any,
) -> Expression:
    """Ask a language model about each row.

    ``messages`` is a column, or a list of columns and constants that make one message: text, images, files, bytes. A
    null gives null and asks nothing. ``return_format`` (a pydantic model, a JSON schema, a type) makes the answers
    structs; one that does not fit is asked for again, ``max_reasks`` times. The model may call ``tool_functions``,
    which run here. ``usage=True`` gives a struct of the value and what it took; ``n`` answers are a list.

    ``options`` are the model's own (``temperature``, ``max_output_tokens``, ``reasoning``, ``tools``, ``extra_body``
    ...) and those of the calls: ``on_error``, ``max_errors``, ``max_retries``, ``timeout`` (seconds for each request),
    ``max_concurrency``, ``requests_per_minute``, ``tokens_per_minute``. Without the last three the rate is found by
    itself. ``batch_api=True`` asks by the provider's batch API, at half the price. ``price`` is that of a million
    tokens, where it is another than the list's. See ``docs/PROMPTS.md``.

    >>> server = getfixture("model_server")  # answers with what it is asked
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"q": ["What does the fox say?", None]})
    >>> df.select(prompt(ps.col("q"), model="gpt-5")).to_pydict()
    {'q': ['What does the fox say?', None]}
    """
    from penstock.ai.prompt import PromptForm
    from penstock.ai.structured.formats import OutputFormat
    from penstock.ai.structured.tools import tool_functions as made_tools

    if n is not None:
        check_whole("prompt", "n", n, 1)
    check_whole("prompt", "max_reasks", max_reasks, 0)
    check_whole("prompt", "max_tool_rounds", max_tool_rounds, 1)
    if system_message is not None and not isinstance(system_message, str):
        raise InvalidArgumentError(f"prompt: system_message is a text; got {type(system_message).__name__}.")
    given = AiOptions.of("prompt", options)
    chosen = find_provider(provider, "prompt")
    given.check_provider("prompt", chosen)
    form = PromptForm(
        chosen.name,
        system_message,
        None if return_format is None else OutputFormat.of(return_format),
        made_tools(tool_functions),
        n if n is None or n > 1 else None,
        usage,
        max_reasks,
        max_tool_rounds,
        given.settings.price,
        is_batch=given.settings.batch is not None,
    )
    found = chosen.model(Prompting(model, given.rest, given.settings))
    identity = _told(
        *("prompt", chosen, found, model, given), system_message=system_message, return_format=form.output,
        tool_functions=form.tools, n=form.num_answers, usage=usage or None, max_reasks=max_reasks,
        max_tool_rounds=max_tool_rounds if form.tools else None,
    )  # fmt: skip
    return _prompted("prompt", found, form, given, _parts(messages), _check_messages, identity)


@method
def embed_text(
    text: Expression,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    long_input: Literal["truncate", "average"] = "truncate",
    **options: Any,
) -> Expression:
    """Turn texts into vectors, of type ``embedding(float32, d)``.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``). Texts longer than the
    model takes are cut, or with ``long_input="average"`` embedded in parts, whose vectors are averaged by length.

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
    given = AiOptions.of("embed_text", options)
    chosen = find_provider(provider, "embed_text")
    given.check_provider("embed_text", chosen)
    found = chosen.model(TextEmbedding(model, given.rest, given.settings, dimensions, long_input))
    identity = _told("embed_text", chosen, found, model, given, dimensions=dimensions, long_input=long_input)
    return _embedded("embed_text", found, given, text, TEXT, identity, long_input)


@method
def embed_image(
    image: Expression,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    **options: Any,
) -> Expression:
    """Turn images into vectors, of type ``embedding(float32, d)``.

    >>> import numpy as np
    >>> folder = getfixture("tiny_clip")  # a model on disk
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]})
    >>> df.select(embed_image(ps.col("i"), model=folder)).schema["i"].dtype
    embedding[float32; 10]
    """
    if dimensions is not None:
        check_whole("embed_image", "dimensions", dimensions, 1)
    given = AiOptions.of("embed_image", options)
    chosen = find_provider(provider, "embed_image")
    given.check_provider("embed_image", chosen)
    found = chosen.model(ImageEmbedding(model, given.rest, given.settings, dimensions))
    identity = _told("embed_image", chosen, found, model, given, dimensions=dimensions)
    return _embedded("embed_image", found, given, image, IMAGE, identity)


@method
def classify_text(
    text: Expression,
    labels: Sequence[str] | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Any,
) -> Expression:
    """Pick for each text the one of ``labels`` that fits best.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``); a model that answers
    prompts is asked to choose.

    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"t": ["I love it"]}).select(classify_text(ps.col("t"), ["good", "bad"]))
    >>> df.to_pydict()["t"][0] in ("good", "bad")
    True
    """
    given, chosen = AiOptions.of("classify_text", options), find_provider(provider, "classify_text")
    given.check_provider("classify_text", chosen)
    names = check_labels("classify_text", labels)
    found = chosen.model(TextClassification(model, given.rest, given.settings, names))
    identity = _told("classify_text", chosen, found, model, given, labels=names)
    return _classified("classify_text", found, given, text, TEXT, names, "text", chosen.name, identity)


@method
def classify_image(
    image: Expression,
    labels: Sequence[str] | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Any,
) -> Expression:
    """Pick for each image the one of ``labels`` that fits best.

    >>> import numpy as np
    >>> server = getfixture("model_server")
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]}).select(classify_image(ps.col("i"), ["cat", "dog"]))
    >>> df.to_pydict()["i"][0] in ("cat", "dog")
    True
    """
    given, chosen = AiOptions.of("classify_image", options), find_provider(provider, "classify_image")
    given.check_provider("classify_image", chosen)
    names = check_labels("classify_image", labels)
    found = chosen.model(ImageClassification(model, given.rest, given.settings, names))
    identity = _told("classify_image", chosen, found, model, given, labels=names)
    return _classified("classify_image", found, given, image, IMAGE, names, "image", chosen.name, identity)


def _told(function: str, provider: Provider, model: Model, name: str | None, options: AiOptions, **given: Any) -> Told:
    from penstock.ai.identity import told

    return told(function, provider, model, name, options.rest, **given)


def _parts(messages: Any) -> tuple[Any, ...]:
    if isinstance(messages, list | tuple):
        if not messages:
            raise InvalidArgumentError("prompt: messages is an empty list; give at least one column or text.")
        return tuple(messages)
    return (messages,)


def _check_messages(*dtypes: DataType) -> None:
    from penstock.ai.messages.message import check_message_types

    names = ["the message"] if len(dtypes) == 1 else [f"part {number}" for number in range(1, len(dtypes) + 1)]
    check_message_types(zip(names, dtypes, strict=True))


def _prompted(
    name: str,
    model: Model,
    form: PromptForm,
    options: AiOptions,
    parts: Sequence[Any],
    check: Callable[..., None] | None,
    identity: Told,
) -> Expression:
    """Return the call of a model that answers prompts."""
    from penstock.ai.prompt import AsyncPrompts, BatchPrompts

    if not isinstance(model, Prompter):
        raise InvalidArgumentError(f"{name} needs a model that answers prompts; got {type(model).__name__}.")
    if form.tools and not model.takes_tools:
        raise InvalidArgumentError(
            f"{name}: tool_functions are for models that call tools, which those of provider {form.provider!r} do not; "
            "use another provider, such as 'openai', or leave them out."
        )
    is_async = inspect.iscoroutinefunction(model.generate)
    spec = UdfSpec(
        name=name,
        target=Target(AsyncPrompts if is_async else BatchPrompts, "answer", (model, form), is_batch=not is_async),
        return_dtype=form.dtype,
        policy=options.policy,
        builtin=Builtin(identity, check, prepare="prepare" if is_async else None),
    )
    return _called(placed(spec, model, options, is_async), *parts)


def _embedded(
    name: str, model: Model, options: AiOptions, column: Any, kind: Kind, identity: Told, long_input: Any = "truncate"
) -> Expression:
    from penstock.ai.embed import BatchEmbeddings, PackedEmbeddings

    if not isinstance(model, Embedder):
        raise InvalidArgumentError(f"{name} needs a model that gives vectors; got {type(model).__name__}.")
    is_async = inspect.iscoroutinefunction(model.embed)
    spec = UdfSpec(
        name=name,
        target=Target(
            PackedEmbeddings if is_async else BatchEmbeddings,
            "embed",
            (model, long_input) if is_async else (model,),
            is_batch=True,
        ),
        return_dtype=DataType.embedding(DataType.float32(), model.dimensions),
        policy=options.policy,
        builtin=Builtin(identity, kind.check),
    )
    return _called(placed(spec, model, options, is_async), column)


def _classified(
    name: str,
    model: Model,
    options: AiOptions,
    column: Any,
    kind: Kind,
    labels: tuple[str, ...],
    what: str,
    provider: str,
    identity: Told,
) -> Expression:
    """Return the call of a classifier, or of a model that answers prompts and is asked to pick a label."""
    from penstock.ai.classify import BatchLabels, instructions

    if isinstance(model, Prompter):
        from penstock.ai.prompt import PromptForm
        from penstock.ai.structured.formats import OutputFormat

        form = PromptForm(provider, instructions(labels, what), OutputFormat.of(Literal[labels]))
        return _prompted(name, model, form, options, (column,), kind.check, identity)
    if not isinstance(model, Classifier):
        raise InvalidArgumentError(f"{name} needs a model that picks labels; got {type(model).__name__}.")
    spec = UdfSpec(
        name=name,
        target=Target(BatchLabels, "classify", (model, labels), is_batch=True),
        return_dtype=DataType.string(),
        policy=options.policy,
        builtin=Builtin(identity, kind.check),
    )
    return _called(placed(spec, model, options, is_async=False), column)


def placed(spec: UdfSpec, model: Model, options: AiOptions, is_async: bool) -> UdfSpec:
    """Return a spec with where it runs: remote models wait on one event loop, others have workers of their own."""
    max_concurrency = options.settings.caps.max_concurrency
    if not is_async:
        options.check_local(spec.name, type(model).__name__)
        resources = model.resources
        if max_concurrency is not None:
            resources = replace(resources, max_workers=max_concurrency)
        return replace(spec, resources=resources, batch_size=model.batch_size)
    if options.settings.batch is not None:
        return _gathered(spec, model)
    at_once = API_BATCHES_AT_ONCE if spec.target.is_batch else API_CALLS_AT_ONCE
    return replace(
        spec,
        target=replace(spec.target, is_async=True),
        resources=replace(model.resources, max_workers=min(max_concurrency or at_once, at_once)),
        builtin=replace(spec.builtin, event_loop=API_LOOP, task_rows=None if spec.target.is_batch else API_TASK_ROWS),
        batch_size=model.max_items if isinstance(model, Embedder) else "auto",
    )


def _gathered(spec: UdfSpec, model: Model) -> UdfSpec:
    """Return a spec whose rows wait for batches of the provider: as many at once as fill one."""
    most = max(BATCHED_TASK_ROWS, get_config().memory_bytes // BATCHED_CALL_NBYTES)
    num_rows = min(BATCHED_CALLS_AT_ONCE, most)
    at_once = -(-num_rows // BATCHED_TASK_ROWS) if spec.target.is_batch else num_rows
    return replace(
        spec,
        target=replace(spec.target, is_async=True),
        resources=replace(model.resources, max_workers=at_once),
        batch_size=BATCHED_TASK_ROWS if spec.target.is_batch else "auto",
        builtin=replace(
            spec.builtin,
            event_loop=API_LOOP,
            task_rows=None if spec.target.is_batch else BATCHED_TASK_ROWS,
            initial_growth=BATCHED_GROWTH,
        ),
    )


def _called(spec: UdfSpec, *args: Any) -> Expression:
    return Expression(UdfCall(spec, tuple(map(to_expr, args)), ()))
