"""One line about each option of the AI functions, for ``help``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.ai.provider import ModelTask

Function = TypeVar("Function", bound=Callable[..., Any])

PARAMETERS = {
    "messages": "a column, or a list of columns and constants that make one message: text, images, files, bytes",
    "text": "the column of texts",
    "image": "the column of images",
    "labels": "the labels to choose from",
    "scores": "True gives a struct of the label, its score, and the scores of all labels (models on this machine)",
    "return_format": "a pydantic model, a JSON schema or a type that answers must match; the column has its type",
    "system_message": "instructions for the model; a text, or an expression with one for each row",
    "provider": "the name of a provider, or a ps.Provider; the default is that of ps.set_provider",
    "model": "the name of a model; prompt also takes an expression, with a name for each row",
    "tool_functions": "Python functions that the model may call; they run in this process",
    "usage": "True gives a struct of the value, its tokens, cost, latency, finish reason and reasoning",
    "logprobs": "True gives a struct of the value and the log-probability of each token of the answer",
    "n": "the number of answers for each row; more than one gives a list",
    "max_reasks": "how often to ask again if an answer does not match return_format (1)",
    "max_tool_rounds": "the most rounds of tool calls for one answer (10)",
    "dimensions": "the length of the vectors, if the model supports several",
    "long_input": "'truncate' texts that are too long (default), or 'average' the vectors of their parts",
}

MODEL = {
    "temperature": "randomness of the answer; 0 is the most likely one",
    "top_p": "sample only from the most likely tokens, up to this probability",
    "top_k": "sample only from so many of the most likely tokens",
    "max_output_tokens": "the most tokens of an answer, reasoning included",
    "max_tokens": "the same under its older name",
    "stop": "a text, or a list of texts, that end an answer",
    "seed": "a seed for sampling",
    "frequency_penalty": "reduce the repetition of tokens by their count",
    "presence_penalty": "reduce the repetition of tokens that occurred",
    "logit_bias": "raise or lower the probability of tokens, by their ids",
    "top_logprobs": "with logprobs=True, the number of the most likely tokens to list at each place (0)",
    "reasoning": "an effort from 'none' to 'max', or a dict such as {'effort': 'low', 'summary': 'auto'}",
    "reasoning_effort": "the effort alone",
    "verbosity": "'low', 'medium' or 'high'",
    "tools": "tools that the provider runs, as its API describes them: [{'type': 'web_search'}]",
    "tool_choice": "whether and which tool the model must call",
    "parallel_tool_calls": "False for at most one tool call at a time",
    "max_tool_calls": "the most calls of the provider's tools",
    "truncation": "'auto' drops the beginning of a conversation that is too long",
    "include": "further fields of the answer, by their names in the API",
    "prediction": "text that the answer probably contains, for a quicker answer",
    "service_tier": "the tier of processing, such as 'flex'",
    "store": "True if the provider may store the answer",
    "metadata": "a dict that the provider stores with the answer",
    "user": "an id of the user, for the provider",
    "prompt_cache_key": "a key that groups requests with the same beginning for the provider's cache",
    "safety_identifier": "an id of the user, for the provider's abuse detection",
    "extra_body": "a dict of further fields, merged into every request",
    "use_chat_completions": "True for servers without the Responses API",
    "repetition_penalty": "reduce repetition; a factor above 1 (local models)",
    "engine_kwargs": "arguments of vLLM's engine, such as {'max_model_len': 8192}",
    "lora": "the folder of a LoRA adapter (vLLM in this process)",
}

LOCAL = {
    "batch_size": "rows of a batch; for remote embeddings the most texts of a request",
    "concurrency": "workers with a copy of the model each; replicas of vLLM's engine",
    "device": "'cpu', 'cuda' or 'cuda:1'",
    "dtype": "the type of the weights, such as 'bfloat16'",
    "gpus": "the number or share of GPUs for each worker",
    "revision": "the revision of the model on the hub",
    "trust_remote_code": "True runs Python code that comes with the model",
    "attn_implementation": "the implementation of attention, as transformers names it",
    "max_length": "the most tokens of the input; the rest is cut off",
    "normalize": "True scales vectors to length 1",
    "prompt": "a text that is put before each input",
    "prompt_name": "the name of such a text in the model's settings",
    "hypothesis_template": "the sentence for a label, with {} in its place",
}

CALLS = {
    "on_error": "'raise' (default) ends the query; 'null' records the row and gives null; 'log' logs it too",
    "max_errors": "end the query after more failed rows, a number or a share; None: not even if nearly all fail",
    "max_retries": "how often to repeat a request after a temporary error (5)",
    "timeout": "the most seconds of one request (600)",
    "max_concurrency": "the most concurrent requests, or workers of a local model; the default adapts to the server",
    "requests_per_minute": "the most requests in a minute",
    "tokens_per_minute": "the most tokens in a minute",
    "cache": "True always caches answers, False never; by default if there is a cache_dir or a job",
    "price": "{'input': dollars, 'output': dollars} for a million tokens, in place of the price list",
    "batch_api": "True uses the provider's batch API: half the price, answers within a day",
    "batch_poll_interval": "the seconds between two looks at a batch (30)",
    "batch_max_requests": "the most requests of a batch",
}


def documented(task: type[ModelTask], *options: str) -> Callable[[Function], Function]:
    """Return a decorator that adds a line for each parameter and option to a docstring.

    ``options`` are those of the providers; the ones of the calls are added.
    """
    lines = {**LOCAL, **MODEL}
    sections: Mapping[str, Mapping[str, str]] = {
        "Parameters": {name: PARAMETERS[name] for name in (*task.parameters, "provider", "model")},
        "Options of models; each provider has some of them": {name: lines[name] for name in options},
        "Options of calls": CALLS,
    }

    def add(function: Function) -> Function:
        parts = [(function.__doc__ or "").rstrip()]
        for title, table in sections.items():
            width = max(map(len, table))
            parts.append("\n".join([f"    {title}:", *(f"      {name:{width}}  {table[name]}" for name in table)]))
        function.__doc__ = "\n\n".join(parts) + "\n    "
        return function

    return add
