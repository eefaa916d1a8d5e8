"""Vectors made from a hash of the text, and OpenAI's endpoint for them."""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Any

import numpy as np

from penstock.testing.apis.model_api import BadRequestError, as_text, count_tokens, field
from penstock.testing.script import EmbeddingLimits, Script

DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "gemini-embedding-001": 3072,
    "text-embedding-004": 768,
}

Vector = np.ndarray[Any, np.dtype[np.float32]]


def embedding(text: str, dimensions: int) -> Vector:
    """Return the unit vector of a text; equal texts have equal vectors.

    >>> a, b = embedding("a", 256), embedding("b", 256)
    >>> bool(abs(a @ a - 1) < 1e-5), bool(abs(a @ b) < 0.5)
    (True, True)
    """
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    vector = np.random.Generator(np.random.SFC64(seed)).standard_normal(dimensions, dtype=np.float32)
    return vector / np.float32(np.sqrt(vector @ vector))


def embed(path: str, body: dict[str, Any], script: Script) -> dict[str, Any]:
    """Answer POST /embeddings."""
    model = field(body, "model", str)
    given = field(body, "input", (str, list))
    texts = [given] if isinstance(given, str) else [as_text(item) for item in given]
    tokens = check_inputs(texts, script.embedding_limits)
    dimensions = num_dimensions(model, body.get("dimensions"), script)
    vectors = [embedding(text, dimensions) for text in texts]
    encoded: list[Any] = list(vectors)
    if body.get("encoding_format", "float") == "base64":
        encoded = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": part} for index, part in enumerate(encoded)],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def check_inputs(texts: list[str], limits: EmbeddingLimits) -> int:
    """Return the number of tokens of all texts; raises BadRequestError above a limit."""
    if not texts or len(texts) > limits.max_items:
        raise BadRequestError(f"'$.input' is invalid: {len(texts)} items; 1 to {limits.max_items} are allowed.")
    tokens = [count_tokens(text) for text in texts]
    if (most := max(tokens)) > limits.max_input_tokens:
        raise BadRequestError(
            f"This model's maximum context length is {limits.max_input_tokens} tokens, however you requested "
            f"{most} tokens ({most} in your prompt; 0 for the completion). Please reduce your prompt."
        )
    if sum(tokens) > limits.max_total_tokens:
        raise BadRequestError(
            f"Requested {sum(tokens)} tokens, max {limits.max_total_tokens} tokens per request",
            code="max_tokens_per_request",
        )
    if not all(texts):
        raise BadRequestError("'$.input' is invalid: input cannot be an empty string.")
    return sum(tokens)


def num_dimensions(model: str, requested: int | None, script: Script) -> int:
    most = script.dimensions or DIMENSIONS.get(model, 1536)
    if requested is not None and not 1 <= requested <= most:
        raise BadRequestError(f"Invalid value for 'dimensions' = {requested}. Must be between 1 and {most}.")
    return requested or most
