"""Models that run on this machine with transformers: from a folder, a package, the Hugging Face cache or the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.ai.decisions.transformers_decider import TransformersDecider
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.generation import PROMPT_OPTIONS, TransformersPrompter
from penstock.ai.local.local_model import OPTIONS, LocalModel
from penstock.ai.local.packed import batches_of
from penstock.ai.local.sampling import ROW_OPTIONS
from penstock.ai.local.sentence_modules import read_modules
from penstock.ai.local.text_classifier import text_classifier
from penstock.ai.local.text_encoder import TextEncoder
from penstock.ai.local.text_reranker import CrossEncoder
from penstock.ai.local.vision import CaptionEmbedder, ImageClassifier, ImageEmbedder, has_shared_space, image_width
from penstock.ai.local.weights import MINILM
from penstock.ai.provider import (
    Deciding,
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
    TextRelevance,
    check_options,
)
from penstock.errors import InvalidArgumentError
from penstock.udf.options import check_whole

CLIP = "openai/clip-vit-base-patch32"
TEXT_OPTIONS = (*OPTIONS, "compile", "max_length")
EMBEDDING_OPTIONS = (*TEXT_OPTIONS, "normalize", "precision", "prompt", "prompt_name")


@dataclass(frozen=True)
class TransformersProvider(Provider):
    """Local models. Without a network they must be on this machine; ``penstock[local]`` installs MiniLM.

    ``device`` and ``dtype`` are defaults for all models of the provider.
    """

    device: str | None = None
    dtype: str | None = None
    name: str = "transformers"
    default_models: ClassVar[Mapping[str, str]] = {
        "prompt": "Qwen/Qwen2.5-0.5B-Instruct",
        "decide": "Qwen/Qwen2.5-0.5B-Instruct",
        "embed_text": MINILM,
        "classify_text": MINILM,  # an NLI model is better, and far larger
        "embed_image": CLIP,
        "classify_image": CLIP,
        "relevance": "cross-encoder/ms-marco-MiniLM-L6-v2",
    }

    @property
    def has_workers(self) -> bool:
        return True

    def model(self, task: ModelTask) -> Model:
        model = self._find(task)
        model.cache = task.settings.cache
        return model

    def _find(self, task: ModelTask) -> Model:
        own = {"device": self.device, "dtype": self.dtype}
        options = {name: value for name, value in own.items() if value is not None} | dict(task.options)
        task = replace(task, options=options)
        checkpoint = Checkpoint.of(self.model_name(task), task)
        if (length := options.get("max_length")) is not None and not isinstance(task, Prompting):
            check_whole(task.function, "max_length", length, 1)
        match task:
            case Prompting():
                check_options(task, self.name, PROMPT_OPTIONS, ROW_OPTIONS)
                return TransformersPrompter(checkpoint, task)
            case Deciding():
                check_options(task, self.name, (*OPTIONS, "max_length"))
                return TransformersDecider(checkpoint, task)
            case TextEmbedding():
                if has_shared_space(checkpoint):
                    check_options(task, self.name, (*OPTIONS, "max_length", "normalize"))
                    return CaptionEmbedder(checkpoint, task, checked_dimensions(task, image_width(checkpoint)))
                check_options(task, self.name, EMBEDDING_OPTIONS)
                return TextEmbedder(checkpoint.for_vectors(), task)
            case TextClassification():
                check_options(task, self.name, (*TEXT_OPTIONS, "hypothesis_template"))
                return text_classifier(checkpoint, task)
            case ImageEmbedding():
                check_options(task, self.name, (*OPTIONS, "normalize"))
                return ImageEmbedder(checkpoint, task, checked_dimensions(task, image_width(checkpoint)))
            case ImageClassification():
                check_options(task, self.name, (*OPTIONS, "hypothesis_template"))
                return ImageClassifier(checkpoint, task)
            case TextRelevance():
                check_options(task, self.name, TEXT_OPTIONS)
                return CrossEncoder(checkpoint, task)
            case _:
                return super().model(task)


class TextEmbedder(LocalModel[TextEncoder], Embedder):
    """Embed texts by the modules of sentence-transformers, or by the mean over the tokens of a plain encoder."""

    def __init__(self, checkpoint: Checkpoint, task: TextEmbedding) -> None:
        self._modules = read_modules(checkpoint)
        self.dimensions = checked_dimensions(task, self._modules.width)
        self.note = batches_of(checkpoint, self._modules.path) if checkpoint.precision is None else "8-bit products"
        prompt = task.options.get("prompt")
        super().__init__(
            checkpoint,
            task,
            width=self.dimensions,
            is_normalized=bool(task.options.get("normalize", self._modules.is_normalized)),
            max_length=task.options.get("max_length"),
            long_input=task.long_input,
            prompt=prompt if prompt is not None else self._modules.prompt(task.options.get("prompt_name")),
        )

    def _build(self) -> TextEncoder:
        return TextEncoder(self._checkpoint, self._modules, **self._options)

    def embed(self, inputs: Sequence[str]) -> NDArray:
        return self.runtime.encode(inputs)


def checked_dimensions(task: TextEmbedding | ImageEmbedding, width: int) -> int:
    """Return the requested number of dimensions; raise an error if the model has fewer."""
    dimensions: Any = width if task.dimensions is None else task.dimensions
    if not isinstance(dimensions, int) or not 1 <= dimensions <= width:
        raise InvalidArgumentError(
            f"{task.function}: dimensions is a whole number up to the model's {width}; got {dimensions!r}"
        )
    return dimensions
