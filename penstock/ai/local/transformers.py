"""Models that run here, by transformers: from a folder, a package, the Hugging Face cache or the hub.

local_weights.py     where the files are                  checkpoint.py   a model as data: its name, how to load it
sentence_modules.py  how a model encodes texts            text_encoder.py, length_batches.py   doing so, fast
zero_shot.py         labels for texts                     vision.py       vectors and labels of images
generation.py        answers to prompts                   chat.py         requests as a model's own dialect
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.ai.local.checkpoint import OPTIONS, Checkpoint, batch_size_of, resources_of
from penstock.ai.local.generation import PROMPT_OPTIONS, TransformersPrompter
from penstock.ai.local.sentence_modules import read_modules
from penstock.ai.local.text_encoder import TextEncoder
from penstock.ai.local.vision import ImageClassifier, ImageEmbedder, image_width
from penstock.ai.local.weights import MINILM
from penstock.ai.local.zero_shot import text_classifier
from penstock.ai.provider import (
    Embedder,
    ImageClassification,
    ImageEmbedding,
    Model,
    ModelTask,
    NDArray,
    Prompting,
    Provider,
    TextClassification,
    TextEmbedding,
    check_options,
)
from penstock.errors import InvalidArgumentError

CLIP = "openai/clip-vit-base-patch32"
TEXT_OPTIONS = (*OPTIONS, "max_length", "normalize", "prompt", "prompt_name")


@dataclass(frozen=True)
class TransformersProvider(Provider):
    """Local models; without a network those that are on this machine, MiniLM with ``penstock[local]`` among them.

    ``device`` and ``dtype`` hold for all its models, unless a call says otherwise.
    """

    device: str | None = None
    dtype: str | None = None
    name: str = "transformers"
    default_models: ClassVar[Mapping[str, str]] = {
        "prompt": "Qwen/Qwen2.5-0.5B-Instruct",
        "embed_text": MINILM,
        "classify_text": MINILM,  # a model of entailment is better at it, and far larger
        "embed_image": CLIP,
        "classify_image": CLIP,
    }

    def model(self, task: ModelTask) -> Model:
        found = self._found(task)
        found.cache = task.settings.cache
        return found

    def _found(self, task: ModelTask) -> Model:
        own = {"device": self.device, "dtype": self.dtype}
        options = {name: value for name, value in own.items() if value is not None} | dict(task.options)
        task = replace(task, options=options)
        checkpoint = Checkpoint.of(self.model_name(task), task)
        match task:
            case Prompting():
                check_options(task, self.name, PROMPT_OPTIONS)
                return TransformersPrompter(checkpoint, task)
            case TextEmbedding():
                check_options(task, self.name, TEXT_OPTIONS)
                return TextEmbedder(checkpoint, task)
            case TextClassification():
                check_options(task, self.name, (*OPTIONS, "max_length", "hypothesis_template"))
                return text_classifier(checkpoint, task)
            case ImageEmbedding():
                check_options(task, self.name, (*OPTIONS, "normalize"))
                return ImageEmbedder(checkpoint, task, checked_dimensions(task, image_width(checkpoint)))
            case ImageClassification():
                check_options(task, self.name, (*OPTIONS, "hypothesis_template"))
                return ImageClassifier(checkpoint, task)
            case _:
                return super().model(task)


class TextEmbedder(Embedder):
    """Embeds texts with any encoder: those of sentence-transformers as they say, others by the mean of their tokens."""

    def __init__(self, checkpoint: Checkpoint, task: TextEmbedding) -> None:
        options = task.options
        self._checkpoint = checkpoint
        self._modules = read_modules(checkpoint)
        self.dimensions = checked_dimensions(task, self._modules.width)
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        prompt = options.get("prompt")
        self._options: dict[str, Any] = {
            "width": self.dimensions,
            "is_normalized": bool(options.get("normalize", self._modules.is_normalized)),
            "max_length": options.get("max_length"),
            "long_input": task.long_input,
            "prompt": prompt if prompt is not None else self._modules.prompt(options.get("prompt_name")),
        }
        self._encoder: TextEncoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_encoder": None}  # weights do not travel

    def identity(self) -> dict[str, Any]:
        return {"function": "embed_text", **self._checkpoint.identity(), **self._options}

    def load(self) -> None:
        self._encoder = TextEncoder(self._checkpoint, self._modules, **self._options)

    def close(self) -> None:
        self._encoder = None

    def embed(self, inputs: Sequence[str]) -> NDArray:
        if self._encoder is None:
            self.load()
        assert self._encoder is not None
        return self._encoder.encode(inputs)


def checked_dimensions(task: Any, width: int) -> int:
    """Return how many numbers a vector shall have: those that are asked for, if the model has as many."""
    dimensions = width if task.dimensions is None else task.dimensions
    if not isinstance(dimensions, int) or not 1 <= dimensions <= width:
        raise InvalidArgumentError(
            f"{task.function}: dimensions is a whole number up to the model's {width}; got {dimensions!r}"
        )
    return dimensions
