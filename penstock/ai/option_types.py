"""The options of AI functions, for type checkers, editors and ``help``: a type and a line about each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_type_hints

from penstock.expr.column import Expression
from penstock.expr.udf import MaxErrors, OnError

Number = float | Expression | None
Count = int | Expression | None
Switch = bool | Expression | None
Text = str | Expression | None
Wire = Literal["openai", "systemone", "logprobs"]

Function = TypeVar("Function", bound=Callable[..., Any])


class CallOptions(TypedDict, total=False):
    """Options of calls, which all AI functions take."""

    on_error: Annotated[
        OnError | None, "'raise' (default) ends the query; 'null' records the row and gives null; 'log' logs it too"
    ]
    max_errors: Annotated[
        MaxErrors, "end the query after more failed rows, a number or a share; None: not even if nearly all fail"
    ]
    max_retries: Annotated[int | None, "how often to repeat a request after a temporary error (5)"]
    timeout: Annotated[float | None, "the most seconds of one request (600)"]
    concurrency: Annotated[
        int | None, "the most concurrent requests (by default found by trying); workers of a local model"
    ]
    max_concurrency: Annotated[int | None, "the same; with vLLM in this process the most requests in its engine"]
    requests_per_minute: Annotated[float | None, "the most requests in a minute"]
    tokens_per_minute: Annotated[float | None, "the most tokens in a minute"]
    cache: Annotated[
        bool | None, "True always caches answers, False never; by default if there is a cache_dir or a job"
    ]
    price: Annotated[
        Mapping[str, float] | None,
        "{'input': dollars, 'output': dollars} for a million tokens, in place of the price list",
    ]
    batch_api: Annotated[bool, "True uses the provider's batch API: half the price, answers within a day"]
    batch_poll_interval: Annotated[float | None, "the seconds between two looks at a batch (30)"]
    batch_max_requests: Annotated[int | None, "the most requests of a batch"]


class LocalModelOptions(TypedDict, total=False):
    """Options of models on this machine."""

    batch_size: Annotated[
        int | Literal["auto"] | None, "rows of a batch; for remote embeddings the most texts of a request"
    ]
    device: Annotated[str | None, "'cpu', 'cuda' or 'cuda:1'"]
    dtype: Annotated[str | None, "the type of the weights, such as 'bfloat16'"]
    gpus: Annotated[float | None, "the number or share of GPUs for each worker"]
    revision: Annotated[str | None, "the revision of the model on the hub"]
    trust_remote_code: Annotated[bool | None, "True runs Python code that comes with the model"]
    attn_implementation: Annotated[str | None, "the implementation of attention, as transformers names it"]
    max_length: Annotated[int | None, "the most tokens of the input; the rest is cut off"]
    compile: Annotated[bool | None, "True compiles a text model while it runs, False does not; by default on a GPU"]


class GenerationOptions(LocalModelOptions, total=False):
    """Options of models that write text; each provider has some of them."""

    temperature: Annotated[Number, "randomness of the answer; 0 is the most likely one"]
    top_p: Annotated[Number, "sample only from the most likely tokens, up to this probability"]
    top_k: Annotated[Count, "sample only from so many of the most likely tokens"]
    max_output_tokens: Annotated[Count, "the most tokens of an answer, reasoning included"]
    max_tokens: Annotated[Count, "the same under its older name"]
    stop: Annotated[Text | Sequence[str], "a text, or a list of texts, that end an answer"]
    seed: Annotated[Count, "a seed for sampling"]
    frequency_penalty: Annotated[Number, "reduce the repetition of tokens by their count"]
    presence_penalty: Annotated[Number, "reduce the repetition of tokens that occurred"]
    logit_bias: Annotated[
        Mapping[str, float] | Expression | None, "raise or lower the probability of tokens, by their ids"
    ]
    reasoning: Annotated[
        str | Mapping[str, Any] | Expression | None,
        "an effort from 'none' to 'max', or a dict such as {'effort': 'low', 'summary': 'auto'}",
    ]
    reasoning_effort: Annotated[Text, "the effort alone"]
    verbosity: Annotated[Text, "'low', 'medium' or 'high'"]
    tools: Annotated[
        Sequence[Mapping[str, Any]] | Expression | None,
        "tools that the provider runs, as its API describes them: [{'type': 'web_search'}]",
    ]
    tool_choice: Annotated[Text | Mapping[str, Any], "whether and which tool the model must call"]
    parallel_tool_calls: Annotated[Switch, "False for at most one tool call at a time"]
    max_tool_calls: Annotated[Count, "the most calls of the provider's tools"]
    truncation: Annotated[Text, "'auto' drops the beginning of a conversation that is too long"]
    include: Annotated[Sequence[str] | Expression | None, "further fields of the answer, by their names in the API"]
    prediction: Annotated[
        str | Mapping[str, Any] | Expression | None, "text that the answer probably contains, for a quicker answer"
    ]
    service_tier: Annotated[Text, "the tier of processing, such as 'flex'"]
    store: Annotated[Switch, "True if the provider may store the answer"]
    metadata: Annotated[Mapping[str, str] | Expression | None, "a dict that the provider stores with the answer"]
    user: Annotated[Text, "an id of the user, for the provider"]
    prompt_cache_key: Annotated[
        str | Expression | None, "a key that groups requests with the same beginning for the provider's cache"
    ]
    safety_identifier: Annotated[Text, "an id of the user, for the provider's abuse detection"]
    extra_body: Annotated[Mapping[str, Any] | Expression | None, "a dict of further fields, merged into every request"]
    use_chat_completions: Annotated[bool | None, "True for servers without the Responses API"]
    repetition_penalty: Annotated[Number, "reduce repetition; a factor above 1 (local models)"]
    engine_kwargs: Annotated[Mapping[str, Any] | None, "arguments of vLLM's engine, such as {'max_model_len': 8192}"]
    lora: Annotated[str | None, "the folder of a LoRA adapter (vLLM in this process)"]


class PromptOptions(GenerationOptions, CallOptions, total=False):
    """The options of ``prompt``."""

    top_logprobs: Annotated[
        int | None, "with logprobs=True, the number of the most likely tokens to list at each place (0)"
    ]


class DecisionOptions(LocalModelOptions, CallOptions, total=False):
    """The options of ``decide``."""

    wire: Annotated[
        Wire | None,
        "the API of the server: of a service for decisions, or a language model's log-probabilities",
    ]
    reasoning_effort: Annotated[str | None, "the effort of a language model; its first token must be the answer"]
    extra_body: Annotated[Mapping[str, Any] | None, "a dict of further fields, merged into every request"]
    safety_identifier: Annotated[str | None, "an id of the user, for the provider's abuse detection"]
    engine_kwargs: Annotated[Mapping[str, Any] | None, "arguments of vLLM's engine, such as {'max_model_len': 8192}"]


class ClassificationOptions(GenerationOptions, CallOptions, total=False):
    """The options of ``classify_text`` and ``classify_image``."""

    wire: Annotated[Wire | None, "answer by ``decide``, with this API of the server"]
    hypothesis_template: Annotated[str | None, "the sentence for a label, with {} in its place"]


class AskOptions(GenerationOptions, CallOptions, total=False):
    """The options of ``ask``."""

    wire: Annotated[Wire | None, "answer by ``decide``, with this API of the server"]


class SemanticJoinOptions(AskOptions, total=False):
    """The options of ``semantic_join``: the options of ``ask``, and its parameters about a cheap judge."""

    cheap: Annotated[str | Expression | None, PARAMETERS["cheap"]]
    precision: Annotated[float, PARAMETERS["precision"]]
    recall: Annotated[float, PARAMETERS["recall"]]
    confidence: Annotated[float, PARAMETERS["confidence"]]


class RelevanceOptions(LocalModelOptions, CallOptions, total=False):
    """The options of ``relevance``."""


class ImageEmbeddingOptions(LocalModelOptions, CallOptions, total=False):
    """The options of ``embed_image``."""

    normalize: Annotated[bool | None, "True scales vectors to length 1"]


class TextEmbeddingOptions(ImageEmbeddingOptions, total=False):
    """The options of ``embed_text``."""

    prompt: Annotated[str | None, "a text that is put before each input"]
    prompt_name: Annotated[str | None, "the name of such a text in the model's settings"]
    precision: Annotated[Literal["int8"] | None, "'int8' for products of 8-bit numbers on a CPU"]
    extra_body: Annotated[Mapping[str, Any] | Expression | None, "a dict of further fields, merged into every request"]
    user: Annotated[Text, "an id of the user, for the provider"]


NUMBERS = tuple(name for name, hint in get_type_hints(GenerationOptions).items() if hint in (Number, Count))
"""Options of models that take a number."""

CALL_OPTIONS = tuple(name for name in CallOptions.__annotations__ if name != "concurrency")
"""Options of the engine, which all AI functions take; ``concurrency`` may be an option of the provider."""

PARAMETERS = {
    "messages": "a column, or a list of columns and constants that make one message: text, images, files, bytes",
    "questions": "a dict of names and questions, made by yes_no, choice and score",
    "question": "the question, in plain words",
    "by": "the columns or expressions that make the groups; by default all rows are one group",
    "k": "the number of rows to return for each group",
    "context_tokens": "about the most tokens of rows in one request (32,000), estimated at four bytes a token",
    "other": "the DataFrame to join with",
    "left_on": "the vectors of this DataFrame's rows, by default embed_text of its columns in the statement",
    "right_on": "the vectors of the rows of other, by default embed_text of its columns in the statement",
    "statement": "a template that is true or false of a row; each {column} is text, an image or a file",
    "cheap": "'auto', 'embeddings', a model of the provider, or a number or a vector for each row: a cheap judge",
    "precision": "with cheap, at least this share of the accepted rows has a yes of the model (0.9)",
    "recall": "with cheap, at least this share of the rows with a yes of the model is accepted (0.9)",
    "confidence": "with cheap, the probability that precision and recall hold (0.95)",
    "query": "the query, or a column of queries",
    "text": "the column of texts",
    "image": "the column of images",
    "labels": "the labels to choose from",
    "scores": "True gives a struct of the label, its score, and the scores of all labels (models on this machine)",
    "return_format": "a pydantic model, a JSON schema or a type that answers must match; the column has its type",
    "system_message": "instructions for the model; a text, or an expression with one for each row",
    "provider": "the name of a provider, or a ps.Provider; by default the choice of ps.set_provider",
    "model": "the name of a model; by default the provider's choice for this task",
    "tool_functions": "Python functions that the model may call; they run in this process",
    "usage": "True gives a struct of the value, its tokens, cost, latency, finish reason and reasoning",
    "logprobs": "True gives a struct of the value and the log-probability of each token of the answer",
    "n": "the number of answers for each row; more than one gives a list",
    "max_reasks": "how often to ask again if an answer does not match return_format (1)",
    "max_tool_rounds": "the most rounds of tool calls for one answer (10)",
    "dimensions": "the length of the vectors, if the model supports several",
    "long_input": "'truncate' texts that are too long (default), or 'average' the vectors of their parts",
}


def documented(options: type, **parameters: str) -> Callable[[Function], Function]:
    """Return a decorator that adds a line for each parameter of a function, and for each of its options.

    ``parameters`` are lines about parameters that mean something else here than in other functions.
    """
    hints = get_type_hints(options, include_extras=True)
    lines: dict[str, str] = {name: hint.__metadata__[0] for name, hint in hints.items()}
    known = PARAMETERS | parameters

    def add(function: Function) -> Function:
        named = {name: known[name] for name in inspect.signature(function).parameters if name in known}
        named |= {name: line for name, line in lines.items() if line == PARAMETERS.get(name)}
        of_calls = {name: lines[name] for name in CallOptions.__annotations__}
        sections = {
            "Parameters": named,
            "Options of models; each provider has some of them": {
                name: line for name, line in lines.items() if name not in named and name not in of_calls
            },
            "Options of calls": of_calls,
        }
        parts = [inspect.cleandoc(function.__doc__ or "")]
        for title, table in sections.items():
            width = max(map(len, table))
            parts.append("\n".join([f"{title}:", *(f"  {name:{width}}  {table[name]}" for name in table)]))
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return add
