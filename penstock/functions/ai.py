"""AI functions of columns: prompts, decisions, embeddings, classification and relevance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

from penstock.ai.decisions import answer_columns  # noqa: F401  # kernels
from penstock.ai.decisions.questions import Question, checked_questions, choice, score, yes_no
from penstock.ai.model_columns import (
    embedding_column,
    label_column,
    prompt_column,
    relevance_column,
    resolve_call,
    scored_label_column,
)
from penstock.ai.option_types import (
    AskOptions,
    ClassificationOptions,
    DecisionOptions,
    ImageEmbeddingOptions,
    PromptOptions,
    RelevanceOptions,
    TextEmbeddingOptions,
    documented,
)
from penstock.ai.options import check_labels
from penstock.ai.provider import (
    ImageClassification,
    ImageEmbedding,
    Provider,
    TextClassification,
    TextEmbedding,
    TextRelevance,
)
from penstock.ai.provider_registry import find_provider
from penstock.errors import InvalidArgumentError, TypeMismatchError, check_choice
from penstock.expr.column import Expression
from penstock.expr.kinds import TEXT, Kind
from penstock.expr.public_functions import function, method
from penstock.expr.templates import text_argument
from penstock.types import DataType
from penstock.udf.options import check_whole

__all__ = [
    *("ask", "choice", "classify_image", "classify_text", "decide", "embed_image", "embed_text", "prompt", "relevance"),
    *("score", "yes_no"),
]

function(yes_no)
function(choice)
function(score)


def _is_image(dtype: DataType) -> bool:
    from penstock.ai.messages.message import may_be_image

    return dtype.is_image() or (dtype.is_tensor() and may_be_image(dtype))


IMAGE = Kind("an image", _is_image, "decode it with decode_image()")

TEMPLATE_ARGUMENTS = {
    "prompt": ("messages", "system_message"),
    "decide": ("messages",),
    "ask": ("statement",),
    "embed_text": ("text",),
    "classify_text": ("text",),
    "relevance": ("query", "text"),
}
"""The arguments of AI functions that are templates if they are plain texts; the first is positional too."""


@method
@documented(PromptOptions, model="the name of a model, or an expression with a name for each row")
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
    **options: Unpack[PromptOptions],
) -> Expression:
    """Ask a language model about each row.

    A text is a template: ``{name}`` stands for a column and ``{{`` for a brace. The texts in a list of parts are sent
    as they are. A null message gives null and sends no request. ``model``, ``system_message`` and the options of the
    model take expressions, with one value for each row; a null is the default. See ``docs/guides/prompts.md``.

    >>> df = ps.from_pydict({"animal": ["fox", None]})
    >>> df.with_column("answer", ps.prompt("What does the {animal} say?", model="gpt-5")).to_pydict()
    {'animal': ['fox', None], 'answer': ['What does the fox say?', None]}
    """
    from penstock.ai.prompt_arguments import prompt_call

    parts = message_parts("prompt", messages)
    call, settings, of_rows = prompt_call(
        provider,
        return_format,
        options,
        model=model,
        system_message=system_message,
        tool_functions=tool_functions,
        usage=usage,
        logprobs=logprobs,
        n=n,
        max_reasks=max_reasks,
        max_tool_rounds=max_tool_rounds,
    )
    check = functools.partial(check_messages, row_options=tuple(of_rows))
    return prompt_column(call, settings, (*parts, *of_rows.values()), check)


@method
@documented(DecisionOptions)
def decide(
    messages: Expression | str | Sequence[Any],
    questions: Mapping[str, Question],
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    usage: bool = False,
    **options: Unpack[DecisionOptions],
) -> Expression:
    """Answer typed questions about each row, with a probability for every option.

    The result is a struct with the answer to each question: ``value``, ``probability`` (of yes, or of the value),
    ``probabilities`` of all options, and ``refused``. The answer to a score has the mean level as ``score``. All
    questions about a row are one request, if the model can answer several. With ``usage=True`` that struct is the
    field ``value`` of a larger one, with tokens, cost and latency. See ``docs/guides/decisions.md``.

    >>> from penstock.functions import choice, decide, yes_no
    >>> df = ps.from_pydict({"text": ["a bug, and yes, I want a refund"]})
    >>> asked = {"refund": yes_no("A refund?"), "topic": choice("About what?", ["billing", "bug"])}
    >>> df = df.with_column("d", decide("{text}", asked, model="gpt-6-luna"))
    >>> df.where(ps.col("d")["refund"]["probability"] > 0.5).select(ps.col("d")["topic"]["value"]).to_pydict()
    {'value': ['bug']}
    """
    from penstock.ai.decisions.decide_column import decide_column

    parts = message_parts("decide", messages)
    return decide_column(parts, checked_questions(questions), provider, model, options, check_messages, usage)


@function
@documented(AskOptions)
def ask(
    statement: str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    cheap: str | Expression | None = None,
    precision: float = 0.9,
    recall: float = 0.9,
    confidence: float = 0.95,
    **options: Unpack[AskOptions],
) -> Expression:
    """Ask a model whether a statement is true of each row: a filter in plain words.

    The result is true or false. It is null if a column of the statement is null, or if the model declines to answer.

    With a ``cheap`` judge, the model answers only for a random sample and for doubtful rows; the judge decides the
    others. ``precision`` and ``recall`` are promises about the result, compared with the model's own answers for all
    rows, and ``confidence`` is the probability that they hold. See ``docs/guides/ask.md``.

    >>> df = ps.from_pydict({"text": ["yes, the parcel is late", "no, thank you", None]})
    >>> from penstock.functions import ask
    >>> df.where(ask("{text} complains about delivery", model="gpt-6-luna")).to_pydict()
    {'text': ['yes, the parcel is late']}
    """
    from penstock.ai.cascade.ask_column import ask_column
    from penstock.ai.cascade.statements import Statement, StatementModel
    from penstock.plan.cascade_relations import Promise

    asked = StatementModel(find_provider(provider, "decide"), model, options, check_messages)
    return ask_column(Statement.of(statement), asked, cheap, Promise(precision, recall, confidence))


@method
@documented(TextEmbeddingOptions)
def embed_text(
    text: Expression | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    long_input: Literal["truncate", "average"] = "truncate",
    **options: Unpack[TextEmbeddingOptions],
) -> Expression:
    """Convert texts to vectors of type ``embedding(float32, d)``.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``). Texts that are too long
    for the model are truncated. With ``long_input="average"`` they are embedded in parts, and the vectors averaged.

    >>> df = ps.from_pydict({"t": ["a cat", "a dog"]}).select(ps.embed_text(ps.col("t"), dimensions=8))
    >>> df.schema["t"].dtype
    embedding[float32; 8]
    """
    if dimensions is not None:
        check_whole("embed_text", "dimensions", dimensions, 1)
    check_choice("embed_text: long_input", long_input, ("truncate", "average"))
    text = text_argument("embed_text", text, "embeds the same text for every row")
    fields = {"dimensions": dimensions, "long_input": long_input}
    return embedding_column(resolve_call(TextEmbedding, model, provider, options, fields), text, TEXT, long_input)


@method
@documented(ImageEmbeddingOptions)
def embed_image(
    image: Expression,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    dimensions: int | None = None,
    **options: Unpack[ImageEmbeddingOptions],
) -> Expression:
    """Convert images to vectors of type ``embedding(float32, d)``.

    >>> import numpy as np
    >>> folder = "clip"  # a model on disk
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]})
    >>> df.select(ps.embed_image(ps.col("i"), model=folder)).schema["i"].dtype
    embedding[float32; 10]
    """
    if dimensions is not None:
        check_whole("embed_image", "dimensions", dimensions, 1)
    call = resolve_call(ImageEmbedding, model, provider, options, {"dimensions": dimensions})
    return embedding_column(call, image, IMAGE)


@method
@documented(ClassificationOptions)
def classify_text(
    text: Expression | str,
    labels: Sequence[str] | str,
    *,
    scores: bool = False,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Unpack[ClassificationOptions],
) -> Expression:
    """Pick the best of ``labels`` for each text.

    Without a provider a small model runs on this machine (``pip install "penstock[local]"``). A language model gets a
    prompt that asks for a label; a decision model, and any remote model that is asked for ``scores``, answers by
    ``decide``.

    >>> df = ps.from_pydict({"t": ["I love it"]}).select(ps.classify_text(ps.col("t"), ["good", "bad"]))
    >>> df.to_pydict()["t"][0] in ("good", "bad")
    True
    """
    from penstock.ai.decisions.decided_labels import decided_label, is_decided

    text = text_argument("classify_text", text, "classifies the same text for every row")
    fields = {"labels": check_labels("classify_text", labels)}
    if is_decided("classify_text", provider, model, has_scores=scores or "wire" in options):
        found = decided_label(text, "text", fields["labels"], provider, model, options, TEXT.check)
        return found if scores else found["label"]
    call = resolve_call(TextClassification, model, provider, options, fields, {"scores": scores or None})
    return scored_label_column(call, text) if scores else label_column(call, text, TEXT, "text")


@method
@documented(ClassificationOptions)
def classify_image(
    image: Expression,
    labels: Sequence[str] | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Unpack[ClassificationOptions],
) -> Expression:
    """Pick the best of ``labels`` for each image.

    >>> import numpy as np
    >>> df = ps.from_pydict({"i": [np.zeros((8, 8, 3), np.uint8)]})
    >>> df = df.select(ps.classify_image(ps.col("i"), ["cat", "dog"]))
    >>> df.to_pydict()["i"][0] in ("cat", "dog")
    True
    """
    from penstock.ai.decisions.decided_labels import decided_label, is_decided

    fields = {"labels": check_labels("classify_image", labels)}
    if is_decided("classify_image", provider, model, has_scores="wire" in options):
        return decided_label(image, "image", fields["labels"], provider, model, options, IMAGE.check)["label"]
    call = resolve_call(ImageClassification, model, provider, options, fields)
    return label_column(call, image, IMAGE, "image")


@method
@documented(RelevanceOptions)
def relevance(
    query: Expression | str,
    text: Expression | str,
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Unpack[RelevanceOptions],
) -> Expression:
    """Score how well each text answers a query, by a reranker: a model that reads both at once (a cross-encoder).

    The query and the text are columns or templates; a query without columns is the same for all rows. A score is
    between 0 and 1, except for models whose configuration asks for another range. If the query or the text is null, the
    score is null. A model runs on this machine (``pip install "penstock[transformers]"``).

    >>> from penstock.functions import relevance
    >>> folder = "reranker"  # a model on disk
    >>> df = ps.from_pydict({"t": ["a joy to read", None]})
    >>> df = df.with_column("score", relevance("a good book", "{t}", model=folder))
    >>> [score is None for score in df.to_pydict()["score"]]
    [False, True]
    """
    query = text_argument("relevance", query, None)
    text = text_argument("relevance", text, "scores the same text for every row")
    call = resolve_call(TextRelevance, model, provider, options, {})
    return relevance_column(call, query, text)


def message_parts(function: str, messages: Any) -> tuple[Any, ...]:
    if isinstance(messages, list | tuple):
        if not messages:
            raise InvalidArgumentError(f"{function}: messages is an empty list; give at least one column or text.")
        return tuple(messages)
    return (text_argument(function, messages, "asks the same question for every row"),)


def check_messages(*dtypes: DataType, row_options: Sequence[str] = ()) -> None:
    """Check the types of the parts of a message, and of the options that follow them."""
    from penstock.ai.messages.message import check_message_types

    num_parts = len(dtypes) - len(row_options)
    for name, dtype in zip(row_options, dtypes[num_parts:], strict=True):
        if name in ("model", "system_message") and not (dtype.is_string() or dtype.is_null()):
            raise TypeMismatchError(f"prompt: {name} takes text; the expression has type {dtype}.")
    dtypes = dtypes[:num_parts]
    names = ["the message"] if len(dtypes) == 1 else [f"part {number}" for number in range(1, len(dtypes) + 1)]
    check_message_types(zip(names, dtypes, strict=True))
