"""Models that take batches; their results are cached by ``Model.identity`` and input."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

import numpy as np

from penstock.ai.conversation import ModelTurn, Request, Text, Turn, UserTurn
from penstock.ai.provider import AnyModel, Prompter
from penstock.cache.keys import canonical, key_of, keys_between
from penstock.cache.memo import Codec, Memo


class CachedModel(Generic[AnyModel]):
    """A worker's own copy of a model, and the memo of its results.

    The model is loaded for the first input that is not cached: a run whose results are all cached loads no weights.
    """

    def __init__(self, model: AnyModel, codec: Codec, method: str = "") -> None:
        """``method`` keeps the results of a model's methods apart."""
        self.model = copy.deepcopy(model)  # several queries may use the model of the plan at the same time
        self._is_loaded = False
        self._loading = threading.Lock()  # several threads may share a model
        self._memo = Memo.open(codec, model.cache, has_ordinals=True)
        if self._memo is not None:
            try:
                identity = self.model.identity()
            except BaseException:
                self._close_memo()
                raise
            self._prefix = canonical(identity) + method.encode() + b"\0"
            if identity is None:
                self._close_memo()
        if self._memo is None:
            self.loaded()

    def loaded(self) -> AnyModel:
        with self._loading:
            if not self._is_loaded:
                self.model.load()
                self._is_loaded = True
        return self.model

    def results(self, inputs: Sequence[Any], compute: Callable[[Sequence[Any]], Iterable[Any]]) -> Iterable[Any]:
        """Return the result of each input, a text or an image as an array. Equal inputs are computed once."""
        if self._memo is None:
            return compute(inputs)
        return self._memo.compute(keys_between(self._prefix, map(_content, inputs), b""), inputs, compute)

    def answers(self, requests: Sequence[Request], compute: Callable[[Sequence[Request]], list[Any]]) -> list[Any]:
        """Return the answers to each request. Equal requests are answered separately when sampling is random."""
        if self._memo is None:
            return compute(requests)
        assert isinstance(self.model, Prompter)
        keys = [key_of(self._prefix + canonical(content_of_request(request))) for request in requests]
        is_random = [not self.model.is_certain(request) for request in requests]
        numbered = iter(self._memo.numbered([key for key, drawn in zip(keys, is_random, strict=True) if drawn]))
        keys = [next(numbered) if drawn else key for key, drawn in zip(keys, is_random, strict=True)]
        return self._memo.compute(keys, requests, compute)

    def close(self) -> Any:
        try:
            return self.model.close() if self._is_loaded else None
        finally:
            self._close_memo()

    def _close_memo(self) -> None:
        memo, self._memo = self._memo, None
        if memo is not None:
            memo.close()


def _content(given: Any) -> bytes:
    if isinstance(given, np.ndarray):
        return canonical([given.dtype.str, given.shape]) + b"\0" + np.ascontiguousarray(given).tobytes()
    return str(given).encode("utf-8", "surrogatepass")


def content_of_request(request: Request) -> dict[str, Any]:
    """Return the content of a request without its return format: another format may read the same answers."""
    return {
        "turns": [_content_of_turn(turn) for turn in request.turns],
        "system": request.system,
        "num_answers": request.num_answers,
        "options": dict(request.options or {}),
    }


def _content_of_turn(turn: Turn) -> Any:
    match turn:
        case UserTurn(parts):
            return [p.text if isinstance(p, Text) else [p.mime_type, hashlib.sha256(p.data).hexdigest()] for p in parts]
        case ModelTurn(text):
            return {"said": text}
        case _:
            return {"results": [result.content for result in turn.results]}


def _encode_vector(vector: np.ndarray[Any, Any]) -> bytes | None:
    """Return a vector as bytes. A vector with NaN or infinity is an error of its row, and is not cached."""
    return np.ascontiguousarray(vector, np.float32).tobytes() if np.isfinite(vector).all() else None


VECTORS = Codec(_encode_vector, lambda raw: np.frombuffer(raw, np.float32))
