"""Labels for texts by local models, in the way that the model's files suggest.

a classifier that has the labels      its own scores, of those labels alone
a classifier of entailment (NLI)      each label as a hypothesis about the text, the most plausible wins
any encoder                           the label whose vector is nearest to the text's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.local.checkpoint import Checkpoint, batch_size_of, resources_of
from penstock.ai.local.length_batches import batches_by_length, padded
from penstock.ai.local.sentence_modules import read_modules
from penstock.ai.local.text_encoder import CPU_TOKENS, GPU_TOKENS, TextEncoder, longest_input
from penstock.ai.provider import Classifier, NDArray, TextClassification
from penstock.errors import InvalidArgumentError

HYPOTHESIS = "This example is {}."


def text_classifier(checkpoint: Checkpoint, task: TextClassification) -> Classifier:
    """Return the classifier that suits a model, or say which labels it has."""
    if checkpoint.read_json("modules.json") is not None:
        return NearestLabel(checkpoint, task)
    config = checkpoint.config()
    architectures = config.get("architectures") or []
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        return NearestLabel(checkpoint, task)
    names = label_names(config)
    if (columns := columns_of(task.labels, names)) is not None:
        return OwnLabels(checkpoint, task, columns)
    if (entailment := next((i for i, name in names.items() if name.lower().startswith("entail")), None)) is not None:
        return Entailment(checkpoint, task, entailment)
    raise labels_error(checkpoint, task, names)


class NearestLabel(Classifier):
    """Compares the vector of a text with those of the labels, each put into a template."""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification) -> None:
        self._checkpoint = checkpoint
        self._labels = task.labels
        self._hypotheses = hypotheses(task, default="{}")
        self._modules = read_modules(checkpoint)
        self._max_length = task.options.get("max_length")
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        self._encoder: TextEncoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_encoder": None}

    def identity(self) -> dict[str, Any]:
        options = {"labels": self._labels, "hypotheses": self._hypotheses, "max_length": self._max_length}
        return {"function": "classify_text", **self._checkpoint.identity(), **options}

    def load(self) -> None:
        self._encoder = TextEncoder(
            self._checkpoint,
            self._modules,
            width=self._modules.width,
            is_normalized=True,
            max_length=self._max_length,
            prompt=self._modules.prompt(None),
        )
        self._vectors = self._encoder.encode(self._hypotheses)

    def close(self) -> None:
        self._encoder = None

    def classify(self, inputs: Sequence[str]) -> list[str]:
        if self._encoder is None:
            self.load()
        assert self._encoder is not None
        nearest = (self._encoder.encode(inputs) @ self._vectors.T).argmax(1)
        return [self._labels[i] for i in nearest]


class SequenceClassifier(Classifier):
    """What classifiers of token sequences share: sorted batches, and the logits of each sequence."""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification) -> None:
        self._checkpoint = checkpoint
        self._labels = task.labels
        self._max_length = task.options.get("max_length")
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        self._model: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None, "_tokenizer": None}

    def identity(self) -> dict[str, Any]:
        options = {"labels": self._labels, "max_length": self._max_length}
        return {"function": "classify_text", **self._checkpoint.identity(), **options}

    def load(self) -> None:
        self._model = self._checkpoint.load("AutoModelForSequenceClassification")
        self._tokenizer = self._checkpoint.load_beside("AutoTokenizer")
        self._device = self._checkpoint.torch_device()
        self._longest = longest_input(self._model.config, self._tokenizer, self._max_length)

    def close(self) -> None:
        self._model = None

    def _logits(self, texts: list[str], pairs: list[str] | None = None) -> NDArray:
        """Return the logits of texts, or of pairs of texts of which the first may be cut."""
        import torch

        if self._model is None:
            self.load()
        tokens = self._tokenizer(
            texts, pairs, truncation="only_first", max_length=self._longest, return_attention_mask=False
        )
        ids = tokens["input_ids"]
        fills = {"input_ids": self._tokenizer.pad_token_id or 0, "token_type_ids": self._tokenizer.pad_token_type_id}
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        out = np.empty((len(ids), self._model.config.num_labels), np.float32)
        max_tokens = CPU_TOKENS if self._device.type == "cpu" else GPU_TOKENS
        with torch.inference_mode():
            for rows in batches_by_length(lengths, max_tokens):
                batch = {
                    key: padded([tokens[key][i] for i in rows], fill) for key, fill in fills.items() if key in tokens
                }
                batch["attention_mask"] = padded([[1] * lengths[i] for i in rows], 0)
                logits = self._model(**{key: torch.from_numpy(v).to(self._device) for key, v in batch.items()}).logits
                out[rows] = logits.float().cpu().numpy()
        return out


class OwnLabels(SequenceClassifier):
    """A classifier that was trained on the labels that are asked for, and perhaps more."""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification, columns: list[int]) -> None:
        super().__init__(checkpoint, task)
        self._columns = columns

    def classify(self, inputs: Sequence[str]) -> list[str]:
        if not inputs:
            return []
        best = self._logits(list(inputs))[:, self._columns].argmax(1)
        return [self._labels[i] for i in best]


class Entailment(SequenceClassifier):
    """A model of natural language inference: which label, as a hypothesis, follows most from the text?"""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification, entailment: int) -> None:
        super().__init__(checkpoint, task)
        self._hypotheses = hypotheses(task, default=HYPOTHESIS)
        self._entailment = entailment

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "hypotheses": self._hypotheses}

    def classify(self, inputs: Sequence[str]) -> list[str]:
        if not inputs:
            return []
        texts = [text for text in inputs for _ in self._hypotheses]
        logits = self._logits(texts, self._hypotheses * len(inputs))[:, self._entailment]
        best = logits.reshape(len(inputs), len(self._hypotheses)).argmax(1)
        return [self._labels[i] for i in best]


def hypotheses(task: Any, default: str) -> list[str]:
    """Return a sentence for each label, as the option ``hypothesis_template`` has it."""
    template = task.options.get("hypothesis_template", default)
    if not isinstance(template, str) or "{}" not in template:
        raise InvalidArgumentError(
            f"{task.function}: hypothesis_template is a text with {{}} in the place of the label; got {template!r}"
        )
    return [template.replace("{}", label) for label in task.labels]


def label_names(config: Mapping[str, Any]) -> dict[int, str]:
    return {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}


def columns_of(labels: Sequence[str], names: Mapping[int, str]) -> list[int] | None:
    """Return which output of a model stands for each label, None if it lacks one. Case and synonyms do not matter.

    >>> columns_of(["Cat", "dog"], {0: "DOG", 1: "tabby, cat"})
    [1, 0]
    """
    known: dict[str, int] = {}
    for number, name in names.items():
        for synonym in (name, *name.split(",")):
            known.setdefault(synonym.strip().casefold(), number)
    columns = [known.get(label.strip().casefold()) for label in labels]
    return None if None in columns else [column for column in columns if column is not None]


def labels_error(checkpoint: Checkpoint, task: Any, names: Mapping[int, str]) -> InvalidArgumentError:
    known = ", ".join(list(names.values())[:20]) + (", ..." if len(names) > 20 else "")
    return InvalidArgumentError(
        f"{task.function}: model {checkpoint.name!r} was trained on the labels {known or '(unnamed)'}; it cannot tell "
        f"{', '.join(task.labels)}. Use its labels, or a model for any labels."
    )
