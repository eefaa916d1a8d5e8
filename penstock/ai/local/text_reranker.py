"""Score pairs of a query and a text with local cross-encoders: sequence classifiers with one output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.local_model import LocalModel
from penstock.ai.local.packed import batches_of
from penstock.ai.local.text_classifier import SequenceModel, sigmoid
from penstock.ai.provider import NDArray, Reranker, TextRelevance
from penstock.errors import InvalidArgumentError

ACTIVATIONS: Mapping[str, Callable[[NDArray], NDArray]] = {"Sigmoid": sigmoid, "Identity": lambda logits: logits}
"""Activations by their names in ``torch.nn``."""


class CrossEncoder(LocalModel[SequenceModel], Reranker):
    """A reranker as sentence-transformers runs it: the activation of its configuration, a sigmoid by default."""

    def __init__(self, checkpoint: Checkpoint, task: TextRelevance) -> None:
        config = checkpoint.config()
        check_has_one_output(checkpoint, config)
        self._activation = activation_of(checkpoint, config)
        self._max_length = task.options.get("max_length")
        self.note = batches_of(checkpoint)
        super().__init__(checkpoint, task, activation=self._activation, max_length=self._max_length)

    def _build(self) -> SequenceModel:
        return SequenceModel(self._checkpoint, self._max_length, has_pairs=True, truncation="longest_first")

    def relevance(self, pairs: Sequence[tuple[str, str]]) -> NDArray:
        return ACTIVATIONS[self._activation](self.runtime.logits(pairs)[:, 0])


def check_has_one_output(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    is_classifier = any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ())
    num_outputs = len(config.get("id2label") or ()) or config.get("num_labels", 2)  # 2 is the default of transformers
    if not is_classifier or num_outputs != 1:
        kind = f"a classifier with {num_outputs} outputs" if is_classifier else "no sequence classifier"
        raise InvalidArgumentError(
            f"relevance: model {checkpoint.name!r} is {kind}; use a reranker, a sequence classifier with one output."
        )


def activation_of(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str:
    """Return the name of the activation: under the key of sentence-transformers, or of its versions before 4."""
    own = config.get("sentence_transformers") or {}
    path = own.get("activation_fn") or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    name: str = path.rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise InvalidArgumentError(
            f"relevance: model {checkpoint.name!r} asks for the activation {path!r}; relevance has "
            f"{' and '.join(ACTIVATIONS)}."
        )
    return name
