"""Label texts with local models, by the method that suits the model:

a classifier with the wanted labels      its own scores for those labels
a classifier of entailment (NLI)         each label as a hypothesis about the text; the most plausible one wins
any encoder                              the label whose vector is nearest to the text's vector
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.local.batch_runner import BatchRunner
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.local_model import LocalModel
from penstock.ai.local.packed import batches_of, load_packed
from penstock.ai.local.sentence_modules import read_modules
from penstock.ai.local.text_encoder import CPU_TOKENS, GPU_TOKENS, TextEncoder
from penstock.ai.local.tokens import BatchTokenizer, Truncation, max_input_tokens, takes_plain_mask
from penstock.ai.provider import Classifier, ImageClassification, NDArray, ScoringClassifier, TextClassification
from penstock.errors import InvalidArgumentError

HYPOTHESIS = "This example is {}."


def text_classifier(checkpoint: Checkpoint, task: TextClassification) -> Classifier:
    """Return the classifier that suits a model; raises InvalidArgumentError if it cannot tell the labels."""
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


class NearestLabel(LocalModel[tuple[TextEncoder, NDArray]], ScoringClassifier):
    """Compare the vector of a text with the vectors of the labels, each in a template. Scores are cosine
    similarities."""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification) -> None:
        self.labels, self._hypotheses = task.labels, hypotheses(task, default="{}")
        self._max_length = task.options.get("max_length")
        self._modules = read_modules(checkpoint)
        super().__init__(checkpoint, task, labels=self.labels, hypotheses=self._hypotheses, max_length=self._max_length)

    def _build(self) -> tuple[TextEncoder, NDArray]:
        encoder = TextEncoder(
            self._checkpoint,
            self._modules,
            width=self._modules.width,
            is_normalized=True,
            max_length=self._max_length,
            prompt=self._modules.prompt(None),
        )
        return encoder, encoder.encode(self._hypotheses)

    def scores(self, inputs: Sequence[str]) -> NDArray:
        encoder, label_vectors = self.runtime
        similarities: NDArray = encoder.encode(inputs) @ label_vectors.T
        return similarities


class SequenceModel:
    """A model for sequence classification, its tokenizer and its device."""

    def __init__(
        self, checkpoint: Checkpoint, max_length: int | None, *, has_pairs: bool, truncation: Truncation
    ) -> None:
        self._packed = load_packed(checkpoint, "AutoModelForSequenceClassification")
        self.model: Any = self._packed or checkpoint.load("AutoModelForSequenceClassification")
        tokenizer = checkpoint.tokenizer()
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        self._padding = tokenizer.pad_token_id
        self._max_length = max_input_tokens(self.model.config.to_dict(), tokenizer, max_length)
        self._tokenizer = BatchTokenizer(tokenizer, self._max_length, has_pairs=has_pairs, truncation=truncation)
        self._device = checkpoint.torch_device()
        self._runner = BatchRunner(self._device, cpu_tokens=CPU_TOKENS, gpu_tokens=GPU_TOKENS)

    def logits(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> NDArray:
        """Return the logits of texts or of text pairs."""
        tokens = self._tokenizer.tokens(texts)
        is_plain = takes_plain_mask(self.model.config)
        on_device = tokens.on(self._device, self._padding, self._max_length, takes_plain_mask=is_plain)

        def forward(rows: NDArray) -> Any:
            if self._packed is not None:
                return self._packed.logits(on_device.packed(rows), self._padding)
            return self.model(**on_device.batch(rows)[0]).logits

        return self._runner.run(tokens.lengths, forward)


class SequenceClassifier(LocalModel[SequenceModel], ScoringClassifier):
    """The base of classifiers that score token sequences."""

    _has_pairs = False

    def __init__(self, checkpoint: Checkpoint, task: TextClassification, **options: Any) -> None:
        self.labels, self._max_length = task.labels, task.options.get("max_length")
        self.note = batches_of(checkpoint)
        super().__init__(checkpoint, task, labels=self.labels, max_length=self._max_length, **options)

    def _build(self) -> SequenceModel:
        truncation: Truncation = "only_first" if self._has_pairs else "longest_first"  # a label stays whole
        return SequenceModel(self._checkpoint, self._max_length, has_pairs=self._has_pairs, truncation=truncation)


class OwnLabels(SequenceClassifier):
    """A classifier that was trained on the wanted labels, and perhaps more. Scores are probabilities among all."""

    def __init__(self, checkpoint: Checkpoint, task: TextClassification, columns: list[int]) -> None:
        super().__init__(checkpoint, task)
        self._columns = columns

    def scores(self, inputs: Sequence[str]) -> NDArray:
        logits = self.runtime.logits(inputs)
        is_multi_label = self.runtime.model.config.problem_type == "multi_label_classification"
        probabilities = sigmoid(logits) if is_multi_label else softmax(logits)
        return probabilities[:, self._columns]


class Entailment(SequenceClassifier):
    """A model of natural language inference: pick the label whose hypothesis follows most from the text.

    Scores are probabilities among the labels.
    """

    _has_pairs = True

    def __init__(self, checkpoint: Checkpoint, task: TextClassification, entailment: int) -> None:
        self._hypotheses = hypotheses(task, default=HYPOTHESIS)
        self._entailment = entailment
        super().__init__(checkpoint, task, hypotheses=self._hypotheses)

    def scores(self, inputs: Sequence[str]) -> NDArray:
        pairs = [(text, hypothesis) for text in inputs for hypothesis in self._hypotheses]
        logits = self.runtime.logits(pairs)[:, self._entailment]
        return softmax(logits.reshape(len(inputs), len(self._hypotheses)))


def sigmoid(logits: NDArray) -> NDArray:
    probabilities: NDArray = np.exp(-np.logaddexp(0, -logits))
    return probabilities


def softmax(logits: NDArray) -> NDArray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares: NDArray = powers / powers.sum(1, keepdims=True)
    return shares


def hypotheses(task: TextClassification | ImageClassification, default: str) -> list[str]:
    """Return a sentence for each label, by the option ``hypothesis_template``."""
    template = task.options.get("hypothesis_template", default)
    if not isinstance(template, str) or "{}" not in template:
        raise InvalidArgumentError(
            f"{task.function}: hypothesis_template is a text with {{}} in the place of the label; got {template!r}"
        )
    return [template.replace("{}", label) for label in task.labels]


def label_names(config: Mapping[str, Any]) -> dict[int, str]:
    return {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}


def columns_of(labels: Sequence[str], names: Mapping[int, str]) -> list[int] | None:
    """Return the output of a model for each label, None if it lacks one. Case is ignored; names may list synonyms.

    >>> columns_of(["Cat", "dog"], {0: "DOG", 1: "tabby, cat"})
    [1, 0]
    """
    known: dict[str, int] = {}
    for number, name in names.items():
        for synonym in (name, *name.split(",")):
            known.setdefault(synonym.strip().casefold(), number)
    columns = [known.get(label.strip().casefold()) for label in labels]
    return None if None in columns else [column for column in columns if column is not None]


def labels_error(
    checkpoint: Checkpoint, task: TextClassification | ImageClassification, names: Mapping[int, str]
) -> InvalidArgumentError:
    known = ", ".join(list(names.values())[:20]) + (", ..." if len(names) > 20 else "")
    return InvalidArgumentError(
        f"{task.function}: model {checkpoint.name!r} was trained on the labels {known or '(unnamed)'}; it cannot tell "
        f"{', '.join(task.labels)}. Use its labels, or a model for any labels."
    )
