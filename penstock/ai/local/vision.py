"""Embed and label images with local models: CLIP and similar models, vision backbones, image classifiers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.local.batch_runner import BatchRunner
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.image_resizer import resizer_of
from penstock.ai.local.local_model import GPU_IMAGES, LocalModel
from penstock.ai.local.text_classifier import columns_of, hypotheses, label_names, labels_error
from penstock.ai.local.tokens import to_device
from penstock.ai.provider import Classifier, Embedder, ImageClassification, ImageEmbedding, NDArray, TextEmbedding
from penstock.errors import InvalidArgumentError, RequestRefusedError
from penstock.media.images.packages import require_images

CAPTION = "This is a photo of {}."
CPU_IMAGES = 4
"""Images of a batch on a CPU."""
CPU_CAPTIONS, GPU_CAPTIONS = 16, 1_024
"""Captions of a batch."""


def has_text_tower(config: Mapping[str, Any]) -> bool:
    """Return whether a model embeds images and texts in one space, like CLIP."""
    return "vision_config" in config and "text_config" in config


def has_shared_space(checkpoint: Checkpoint) -> bool:
    """Return whether ``embed_text`` uses a model's text tower. A model that writes about images has none."""
    if checkpoint.read_json("modules.json") is not None:
        return False
    config = checkpoint.config()
    return has_text_tower(config) and _width_in(config) is not None


def image_width(checkpoint: Checkpoint) -> int:
    """Return the length of an image's vector, from the configuration."""
    config = checkpoint.config()
    # Files may omit the defaults of a model family, which only transformers knows.
    width = _width_in(config) or _width_in(checkpoint.load_config())
    if width is None:
        raise RequestRefusedError(
            f"The configuration of model {checkpoint.name!r} does not state the length of its vectors."
        )
    return width


def _width_in(config: Mapping[str, Any]) -> int | None:
    if not has_text_tower(config):
        width = config.get("hidden_size") or config.get("hidden_sizes")
    elif str(config.get("model_type", "")).startswith("siglip"):
        width = config["vision_config"].get("hidden_size")
    else:
        width = config.get("projection_dim")
    return None if width is None else int(width[-1] if isinstance(width, list) else width)


class VisionModel:
    """A model and its image processor in memory."""

    def __init__(self, checkpoint: Checkpoint, auto_class: str) -> None:
        self._checkpoint = checkpoint
        folder = checkpoint.folder()
        if not any("processor" in file.name for file in folder.glob("*.json")):
            raise RequestRefusedError(
                f"Model {checkpoint.name!r} takes no images: {str(folder)!r} has no preprocessor_config.json."
            )
        self.model = checkpoint.load(auto_class)
        self.processor = checkpoint.from_pretrained("AutoImageProcessor")
        self.device = checkpoint.torch_device()
        self._runner = BatchRunner(self.device, cpu_tokens=CPU_IMAGES, gpu_tokens=GPU_IMAGES)
        self._resizer = resizer_of(self.processor)
        if self.device.type == "cuda":
            import torch

            self._copies = torch.cuda.Stream(self.device)
        self._has_text_tower = has_text_tower(checkpoint.config())
        self._has_pooler = _has_trained_pooler(checkpoint)

    def run(self, images: Sequence[NDArray], output: Any) -> NDArray:
        """Return ``output(pixels)`` of all images, computed a few at a time. Several threads may call it at once."""
        prepared = self._on_gpu(images) if self.device.type == "cuda" else None

        def forward(rows: NDArray) -> Any:
            pixels = self._processed([images[row] for row in rows]) if prepared is None else prepared(rows)
            return output(pixels)

        return self._runner.run(np.ones(len(images), np.int64), forward)

    def _processed(self, images: Sequence[NDArray]) -> dict[str, Any]:
        """Return the input of the model for images, on the device."""
        some = [as_rgb(image) for image in images]
        pixels = self.processor(images=some, return_tensors="pt", input_data_format="channels_last")
        return {
            key: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for key, value in pixels.items()
        }

    def _on_gpu(self, images: Sequence[NDArray]) -> Callable[[NDArray], dict[str, Any]]:
        """Copy all images to the GPU and return a function that picks the input of the model for some rows.

        Copying and resizing run on a stream of their own, while the model computes the previous task.
        """
        import torch

        with torch.inference_mode(), torch.cuda.stream(self._copies):
            if self._resizer is None:
                pixels = self._processed(images)
            else:
                pixels = {"pixel_values": self._resizer.pixels([as_rgb(image) for image in images], self.device)}
                pixels["pixel_values"] = pixels["pixel_values"].to(self.model.dtype)
            is_ready = torch.cuda.Event()
            is_ready.record()

        def pick(rows: NDArray) -> dict[str, Any]:
            torch.cuda.current_stream().wait_event(is_ready)
            where = to_device(rows, self.device)
            for value in pixels.values():
                value.record_stream(torch.cuda.current_stream())
            return {key: value[where] for key, value in pixels.items()}

        return pick

    def features(self, pixels: dict[str, Any]) -> Any:
        """Return a vector for each image: in the space that images share with texts, or pooled by the backbone."""
        if self._has_text_tower:
            return _tensor(self.model.get_image_features(**pixels))
        out = self.model(**pixels)
        if self._has_pooler and out.get("pooler_output") is not None:
            return out["pooler_output"].flatten(1)
        hidden = out["last_hidden_state"]
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))

    def text_features(self, texts: list[str]) -> NDArray:
        """Return the vectors of texts in the space of the images."""
        return TextTower(self._checkpoint, self.model).features(texts)


class TextTower:
    """The part of a model like CLIP that embeds texts in the space of the images."""

    def __init__(self, checkpoint: Checkpoint, model: Any, max_length: int | None = None) -> None:
        self._model = model
        self._device = checkpoint.torch_device()
        self._tokenizer = checkpoint.tokenizer()
        positions = int(model.config.text_config.max_position_embeddings)
        self._max_length = min(max_length or positions, positions)
        is_siglip = str(model.config.model_type).startswith("siglip")  # trained with padding to the full length
        self._padding: str | bool = "max_length" if is_siglip else True
        self._runner = BatchRunner(self._device, cpu_tokens=CPU_CAPTIONS, gpu_tokens=GPU_CAPTIONS)
        self._lock = threading.Lock()

    def features(self, texts: Sequence[str]) -> NDArray:
        """Return the vectors of texts. Several threads may call it at the same time."""

        def forward(rows: NDArray) -> Any:
            with self._lock:  # a tokenizer cannot pad in two threads at once
                tokens = self._tokenizer(
                    [texts[row] for row in rows],
                    padding=self._padding,
                    truncation=True,
                    max_length=self._max_length,
                    return_tensors="pt",
                )
            return _tensor(self._model.get_text_features(**tokens.to(self._device)))

        return self._runner.run(np.ones(len(texts), np.int64), forward)


class CaptionEmbedder(LocalModel[TextTower], Embedder):
    """Embed texts in the space of images, to search images by a text."""

    def __init__(self, checkpoint: Checkpoint, task: TextEmbedding, dimensions: int) -> None:
        if task.long_input != "truncate":
            raise InvalidArgumentError(
                f"{task.function}: model {checkpoint.name!r} embeds captions of images; it truncates longer texts. "
                "Leave long_input out."
            )
        self._is_normalized = bool(task.options.get("normalize", False))
        self._max_length = task.options.get("max_length")
        self.dimensions = dimensions
        facts = {"normalize": self._is_normalized, "dimensions": dimensions, "max_length": self._max_length}
        super().__init__(checkpoint, task, **facts)

    def _build(self) -> TextTower:
        return TextTower(self._checkpoint, self._checkpoint.load("AutoModel"), self._max_length)

    def embed(self, inputs: Sequence[str]) -> NDArray:
        if not len(inputs):
            return np.empty((0, self.dimensions), np.float32)
        vectors = self.runtime.features(inputs)[:, : self.dimensions]
        return unit(vectors) if self._is_normalized else np.ascontiguousarray(vectors)


class ImageEmbedder(LocalModel[VisionModel], Embedder):
    def __init__(self, checkpoint: Checkpoint, task: ImageEmbedding, dimensions: int) -> None:
        require_images(task.function)
        self._is_normalized = bool(task.options.get("normalize", False))
        self.dimensions = dimensions
        super().__init__(checkpoint, task, normalize=self._is_normalized, dimensions=dimensions)

    def _build(self) -> VisionModel:
        return VisionModel(self._checkpoint, "AutoModel")

    def embed(self, inputs: Sequence[NDArray]) -> NDArray:
        if not len(inputs):
            return np.empty((0, self.dimensions), np.float32)
        vectors = self.runtime.run(inputs, self.runtime.features)[:, : self.dimensions]
        return unit(vectors) if self._is_normalized else np.ascontiguousarray(vectors)


class ImageClassifier(LocalModel[VisionModel], Classifier):
    """Pick a label by the model's own classes, or by the nearest caption if images and texts share a space."""

    def __init__(self, checkpoint: Checkpoint, task: ImageClassification) -> None:
        require_images(task.function)
        config = checkpoint.config()
        self._labels = task.labels
        self._captions = hypotheses(task, default=CAPTION)
        self._columns: list[int] | None = None
        if not has_text_tower(config):
            self._columns = columns_of(task.labels, label_names(config))
            if self._columns is None:
                raise labels_error(checkpoint, task, label_names(config))
        super().__init__(checkpoint, task, labels=self._labels, captions=self._captions)

    def _build(self) -> VisionModel:
        if self._columns is not None:
            return VisionModel(self._checkpoint, "AutoModelForImageClassification")
        vision = VisionModel(self._checkpoint, "AutoModel")
        self._caption_vectors = unit(vision.text_features(self._captions))
        return vision

    def classify(self, inputs: Sequence[NDArray]) -> list[str]:
        if not len(inputs):
            return []
        vision = self.runtime
        if self._columns is None:
            scores = unit(vision.run(inputs, vision.features)) @ self._caption_vectors.T
        else:
            scores = vision.run(inputs, lambda pixels: vision.model(**pixels).logits)[:, self._columns]
        return [self._labels[i] for i in scores.argmax(1)]


def as_rgb(image: NDArray) -> NDArray:
    """Return an image with three channels of bytes: grey is repeated, transparency removed.

    >>> as_rgb(np.zeros((2, 3, 1), np.uint8)).shape, as_rgb(np.zeros((2, 3, 4), np.uint8)).shape
    ((2, 3, 3), (2, 3, 3))
    """
    image = image[:, :, None] if image.ndim == 2 else image
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    elif image.dtype != np.uint8:
        raise InvalidArgumentError(
            f"Models take images of 8 or 16 bits a channel; got {image.dtype}. Convert them to RGB."
        )
    return image[:, :, :3] if image.shape[2] >= 3 else np.repeat(image[:, :, :1], 3, axis=2)


def _tensor(output: Any) -> Any:
    """Return the features themselves; newer versions of transformers wrap them."""
    import torch

    return output if isinstance(output, torch.Tensor) else output.pooler_output


def _has_trained_pooler(checkpoint: Checkpoint) -> bool:
    """Return False for a classifier of a family whose pooler is not in the checkpoint, so it would be random."""
    config = checkpoint.config()
    is_head = any(name.endswith("ForImageClassification") for name in config.get("architectures") or [])
    return not (is_head and config.get("model_type") in ("vit", "deit", "beit", "dinov2_with_registers"))


def unit(vectors: NDArray) -> NDArray:
    """Return vectors of unit length."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)  # type: ignore[no-any-return]
