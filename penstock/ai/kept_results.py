"""Results of models that are given batches, kept by what determines them: which model it is, and its input.

A model says which it is by ``Model.identity``. It is loaded for the first input whose result is not kept: a run of
which all is known loads no weights.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import orjson

from penstock.ai.conversation import Generation, ModelTurn, Request, Text, Turn, UserTurn
from penstock.ai.packing import packed, unpacked
from penstock.ai.provider import AnyModel, Model, Prompter
from penstock.ai.remembering import configured_ledger
from penstock.ai.samples import SharedSamples
from penstock.cache.keys import canonical, key_of, keys_between
from penstock.protocols import Ledger


class KeptModel(Generic[AnyModel]):
    """A model of a worker's own, and what is kept of its results, None where nothing is."""

    def __init__(self, model: AnyModel) -> None:
        self._model = copy.deepcopy(model)  # several queries may use the one in the plan at the same time
        self.kept = KeptResults.of(self._model)
        self._is_loaded = False
        if self.kept is None:
            self.ready()

    @property
    def spec(self) -> AnyModel:
        """The model, to ask what it is; it may not be loaded."""
        return self._model

    def ready(self) -> AnyModel:
        """Return the model, loaded."""
        if not self._is_loaded:
            self._model.load()
            self._is_loaded = True
        return self._model

    def close(self) -> Any:
        try:
            return self._model.close() if self._is_loaded else None
        finally:
            if self.kept is not None:
                self.kept.close()


class KeptResults:
    """The results of one model, by input."""

    def __init__(self, ledger: Ledger, identity: Any) -> None:
        self._ledger = ledger
        self._model = canonical(identity) + b"\0"
        self._held = SharedSamples()

    @staticmethod
    def of(model: Model) -> KeptResults | None:
        """Return what is kept of a model's results here; None where the user or the model does not want it."""
        if (ledger := configured_ledger(model.cache)) is None:
            return None
        try:
            identity = model.identity()
        except BaseException:
            ledger.close()
            raise
        if identity is None:
            ledger.close()
            return None
        return KeptResults(ledger, identity)

    def of_inputs(
        self, inputs: Sequence[Any], codec: Codec, compute: Callable[[list[Any]], Iterable[Any]]
    ) -> list[Any]:
        """Return the result of each input; ``compute`` gives those of the inputs whose result is not kept.

        Inputs are texts, or images as arrays. Equal ones are computed once.
        """
        return self._results(keys_between(self._model, map(_content, inputs), b""), inputs, codec, compute)

    def of_requests(
        self, requests: Sequence[Request], model: Prompter, compute: Callable[[list[Any]], Iterable[Any]]
    ) -> list[Any]:
        """Do the same for requests, of which equal ones are as many where chance has a part in the answers."""
        keys = [key_of(self._model + canonical(_described(request))) for request in requests]
        drawn = [number for number, request in enumerate(requests) if not model.is_certain(request)]
        for number, key in zip(drawn, self._held.samples.keys([keys[n] for n in drawn]), strict=True):
            keys[number] = key
        return self._results(keys, requests, ANSWERS, compute)

    def close(self) -> None:
        try:
            self._held.close()
        finally:
            self._ledger.close()

    def _results(
        self,
        keys: Sequence[bytes],
        inputs: Sequence[Any],
        codec: Codec,
        compute: Callable[[list[Any]], Iterable[Any]],
    ) -> list[Any]:
        kept = self._ledger.get(keys)
        missing = {key: each for key, each in zip(keys, inputs, strict=True) if key not in kept}
        made = dict(zip(missing, compute(list(missing.values())), strict=True)) if missing else {}
        for key, result in made.items():
            if (raw := codec.packed(result)) is not None:
                self._ledger.put(key, raw)
        return [made[key] if key in made else codec.unpacked(kept[key]) for key in keys]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a result is kept: as what bytes, None for one that is not to be kept."""

    packed: Callable[[Any], bytes | None]
    unpacked: Callable[[bytes], Any]


VECTORS = Codec(lambda vector: vector.tobytes(), lambda raw: np.frombuffer(raw, np.float32))


def _content(given: Any) -> bytes:
    """Return what an input is, in bytes."""
    if isinstance(given, np.ndarray):
        return canonical([given.dtype.str, given.shape]) + b"\0" + np.ascontiguousarray(given).tobytes()
    return str(given).encode("utf-8", "surrogatepass")


def _described(request: Request) -> dict[str, Any]:
    """Return what a request asks, but for the form of the answer: another form reads the answers that are there."""
    return {
        "turns": [_turn(turn) for turn in request.turns],
        "system": request.system,
        "num_answers": request.num_answers,
        "options": dict(request.options or {}),
    }


def _turn(turn: Turn) -> Any:
    match turn:
        case UserTurn(parts):
            return [p.text if isinstance(p, Text) else [p.mime_type, hashlib.sha256(p.data).hexdigest()] for p in parts]
        case ModelTurn(text):
            return {"said": text}
        case _:
            return {"results": [result.content for result in turn.results]}


def _packed_answers(answers: Sequence[Generation] | Exception) -> bytes | None:
    if isinstance(answers, Exception) or any(answer.raw is not None for answer in answers):
        return None
    return packed(answers)


ANSWERS = Codec(_packed_answers, lambda raw: unpacked(orjson.loads(raw)))
