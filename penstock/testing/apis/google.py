"""Google's Gemini API: contents and embeddings."""

from __future__ import annotations

from typing import Any

from penstock.testing.apis.embeddings import check_inputs, embedding, num_dimensions
from penstock.testing.apis.model_api import (
    ModelAnswer,
    ModelRequest,
    as_text,
    count_tokens,
    field,
    json_or,
    split_at_question,
)
from penstock.testing.script import Script

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "tools": "STOP"}
SAFETY = [{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}]


class Google:
    """Keys and errors of Google, which reports limits in the bodies of refusals only."""

    key_header = "x-goog-api-key"
    request_id_header = "x-goog-request-id"

    def error(self, status: int, message: str | None, code: str | None, retry_s: float | None = None) -> dict[str, Any]:
        message = message or "An internal error has occurred."
        error = {"code": status, "message": message, "status": code or STATUSES.get(status, "UNKNOWN")}
        if retry_s is not None:
            info = "type.googleapis.com/google.rpc.RetryInfo"
            return {"error": {**error, "details": [{"@type": info, "retryDelay": f"{retry_s:.9g}s"}]}}
        return {"error": error}

    def limit_headers(self, kind: str, limit: int, remaining: int, reset_s: float) -> dict[str, str]:
        return {}

    def retry_headers(self, wait_s: float) -> dict[str, str]:
        return {}


class GenerateContent:
    """POST /models/{model}:generateContent."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        contents = field(body, "contents", (list, dict))
        contents = contents if isinstance(contents, list) else [contents]
        asked, since = split_at_question(contents, _is_from_user)
        config = body.get("generationConfig") or {}
        schema = config.get("responseSchema") or config.get("responseJsonSchema")
        forced, parameters = _forced(body)
        results = [
            as_text(_plain(part["functionResponse"].get("response")))
            for content in since
            for part in content.get("parts", ())
            if "functionResponse" in part
        ]
        return ModelRequest(
            path,
            model_of(path),
            _text(asked),
            body,
            parameters if forced else schema,
            forced,
            tuple(results),
            sum(content.get("role") == "model" for content in since),
            config.get("candidateCount") or 1,
            config.get("maxOutputTokens"),
        )

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        contents = request.body["contents"]
        contents = contents if isinstance(contents, list) else [contents]
        prompt_tokens = sum(count_tokens(_text(content)) for content in contents)
        tokens = sum(count_tokens(answer.text) for answer in answers)
        usage = {"promptTokenCount": prompt_tokens, "totalTokenCount": prompt_tokens}
        if answers[0].finish == "refusal":
            feedback = {"blockReason": "SAFETY", "safetyRatings": SAFETY}
            return {"promptFeedback": feedback, "usageMetadata": usage, "modelVersion": request.model}
        return {
            "candidates": [_candidate(index, answer) for index, answer in enumerate(answers)],
            "usageMetadata": {**usage, "candidatesTokenCount": tokens, "totalTokenCount": prompt_tokens + tokens},
            "modelVersion": request.model,
        }


def _candidate(index: int, answer: ModelAnswer) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": index, "finishReason": FINISH.get(answer.finish, "STOP")}
    if answer.finish == "filter":
        return candidate | {"safetyRatings": SAFETY}
    parts: list[dict[str, Any]] = [{"text": answer.text}]
    if answer.tool_calls:
        parts = [
            {"functionCall": {"name": name, "args": json_or(text, {"arguments": text})}}
            for name, text in answer.tool_calls
        ]
    return candidate | {"content": {"role": "model", "parts": parts}}


def embed_content(path: str, body: dict[str, Any], script: Script) -> dict[str, Any]:
    """Answer POST /models/{model}:embedContent."""
    return {"embedding": {"values": _vectors(path, [body], script)[0]}}


def batch_embed_contents(path: str, body: dict[str, Any], script: Script) -> dict[str, Any]:
    """Answer POST /models/{model}:batchEmbedContents."""
    vectors = _vectors(path, field(body, "requests", list), script)
    return {"embeddings": [{"values": vector} for vector in vectors]}


def model_of(path: str) -> str:
    return path.rpartition("/")[2].partition(":")[0]


def _vectors(path: str, requests: list[dict[str, Any]], script: Script) -> list[Any]:
    model = model_of(path)
    texts = [_text(field(request, "content", dict)) for request in requests]
    check_inputs(texts, script.embedding_limits)
    return [
        embedding(text, num_dimensions(model, request.get("outputDimensionality"), script))
        for text, request in zip(texts, requests, strict=True)
    ]


def _is_from_user(content: dict[str, Any]) -> bool:
    """Return whether the user wrote a content, rather than a function."""
    if content.get("role", "user") != "user":
        return False
    return any("functionResponse" not in part for part in content.get("parts", ()))


def _text(content: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in content.get("parts", ()) if "text" in part)


def _forced(body: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the function that the request requires, if any, and the schema of its arguments."""
    choice = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    functions = {
        function["name"]: function.get("parameters") or function.get("parametersJsonSchema") or {}
        for tool in body.get("tools") or ()
        for function in tool.get("functionDeclarations", ())
    }
    if choice.get("mode") != "ANY" or not functions:
        return None, {}
    name = next(iter(choice.get("allowedFunctionNames") or functions))
    return name, functions.get(name, {})


def _plain(response: Any) -> Any:
    """Return the result of a function; clients wrap values that are not objects in an object with one key."""
    if isinstance(response, dict) and len(response) == 1:
        (value,) = response.values()
        return value
    return response
