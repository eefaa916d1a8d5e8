"""Images to vectors and labels by local models: CLIP and its kin, vision backbones, image classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.local.checkpoint import Checkpoint, batch_size_of, resources_of
from penstock.ai.local.zero_shot import columns_of, hypotheses, label_names, labels_error
from penstock.ai.provider import Classifier, Embedder, ImageClassification, ImageEmbedding, NDArray
from penstock.errors import InvalidArgumentError, RequestRefusedError
from penstock.media.images.packages import require_images

CAPTION = "This is a photo of {}."
IMAGES_AT_ONCE = 64


def has_text_tower(config: Mapping[str, Any]) -> bool:
    """Return whether a model puts images and texts into one space, as CLIP does."""
    return "vision_config" in config and "text_config" in config


def image_width(checkpoint: Checkpoint) -> int:
    """Return how many numbers a model has for an image, from its configuration alone."""
    config = checkpoint.config()
    vision = config.get("vision_config") or {}
    keys: tuple[tuple[Mapping[str, Any], str], ...] = ((config, "hidden_size"), (config, "hidden_sizes"))
    if has_text_tower(config):
        is_projected = not str(config.get("model_type", "")).startswith("siglip")
        keys = ((config, "projection_dim"),) if is_projected else ((vision, "hidden_size"),)
    for part, key in keys:
        if (width := part.get(key)) is not None:
            return int(width[-1] if isinstance(width, list) else width)
    # Files may leave out what is the family's default; only transformers knows those.
    full = checkpoint.load_config()
    full = full.vision_config if keys[0][0] is vision else full
    width = getattr(full, keys[0][1], None) or getattr(full, "hidden_sizes", [None])[-1]
    if width is None:
        raise RequestRefusedError(
            f"The configuration of model {checkpoint.name!r} does not say how wide its vectors are."
        )
    return int(width)


class VisionModel:
    """A model and its image processor in memory."""

    def __init__(self, checkpoint: Checkpoint, auto_class: str) -> None:
        self._checkpoint = checkpoint
        self.model = checkpoint.load(auto_class)
        self.processor = checkpoint.load_beside("AutoImageProcessor")
        self.device = checkpoint.torch_device()
        config = self.model.config
        self.has_text_tower = hasattr(config, "text_config") and hasattr(self.model, "get_image_features")
        self._has_pooler = _has_trained_pooler(checkpoint)

    def run(self, images: Sequence[NDArray], output: Any) -> NDArray:
        """Return ``output(pixels)`` for all images, a few at a time."""
        import torch

        parts = []
        with torch.inference_mode():
            for start in range(0, len(images), IMAGES_AT_ONCE):
                some = [as_rgb(image) for image in images[start : start + IMAGES_AT_ONCE]]
                pixels = self.processor(images=some, return_tensors="pt", input_data_format="channels_last")
                moved = {key: self._moved(value) for key, value in pixels.items()}
                parts.append(output(moved).float().cpu().numpy())
        return np.concatenate(parts)

    def _moved(self, value: Any) -> Any:
        return value.to(self.device, self.model.dtype) if value.is_floating_point() else value.to(self.device)

    def features(self, pixels: dict[str, Any]) -> Any:
        """Return a vector for each image: of the space shared with texts, or what the backbone pools."""
        if self.has_text_tower:
            return _tensor(self.model.get_image_features(**pixels))
        out = self.model(**pixels)
        if self._has_pooler and getattr(out, "pooler_output", None) is not None:
            return out.pooler_output.flatten(1)
        hidden = out.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))

    def text_features(self, texts: list[str]) -> NDArray:
        """Return the vectors of texts in the space of the images."""
        import torch

        tokenizer = self._checkpoint.load_beside("AutoTokenizer")
        text = self.model.config.text_config
        is_fixed = str(self.model.config.model_type).startswith("siglip")  # trained with padding up to the end
        tokens = tokenizer(
            texts, padding="max_length" if is_fixed else True, truncation=True,
            max_length=text.max_position_embeddings, return_tensors="pt",
        ).to(self.device)  # fmt: skip
        with torch.inference_mode():
            return _tensor(self.model.get_text_features(**tokens)).float().cpu().numpy()  # type: ignore[no-any-return]


class ImageEmbedder(Embedder):
    def __init__(self, checkpoint: Checkpoint, task: ImageEmbedding, dimensions: int) -> None:
        require_images(task.function)
        self._checkpoint = checkpoint
        self._is_normalized = bool(task.options.get("normalize", False))
        self.dimensions = dimensions
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        self._vision: VisionModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_vision": None}

    def identity(self) -> dict[str, Any]:
        options = {"normalize": self._is_normalized, "dimensions": self.dimensions}
        return {"function": "embed_image", **self._checkpoint.identity(), **options}

    def load(self) -> None:
        self._vision = VisionModel(self._checkpoint, "AutoModel")

    def close(self) -> None:
        self._vision = None

    def embed(self, inputs: Sequence[NDArray]) -> NDArray:
        if not len(inputs):
            return np.empty((0, self.dimensions), np.float32)
        if self._vision is None:
            self.load()
        assert self._vision is not None
        vectors = self._vision.run(inputs, self._vision.features)[:, : self.dimensions]
        return unit(vectors) if self._is_normalized else np.ascontiguousarray(vectors)


class ImageClassifier(Classifier):
    """Picks a label by the model's own classes, or by the nearest caption where images and texts share a space."""

    def __init__(self, checkpoint: Checkpoint, task: ImageClassification) -> None:
        require_images(task.function)
        config = checkpoint.config()
        self._checkpoint = checkpoint
        self._labels = task.labels
        self._captions = hypotheses(task, default=CAPTION)
        self._columns: list[int] | None = None
        if not has_text_tower(config):
            if (columns := columns_of(task.labels, label_names(config))) is None:
                raise labels_error(checkpoint, task, label_names(config))
            self._columns = columns
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        self._vision: VisionModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_vision": None}

    def identity(self) -> dict[str, Any]:
        options = {"labels": self._labels, "captions": self._captions}
        return {"function": "classify_image", **self._checkpoint.identity(), **options}

    def load(self) -> None:
        self._vision = VisionModel(
            self._checkpoint, "AutoModel" if self._columns is None else "AutoModelForImageClassification"
        )
        if self._columns is None:
            self._vectors = unit(self._vision.text_features(self._captions))

    def close(self) -> None:
        self._vision = None

    def classify(self, inputs: Sequence[NDArray]) -> list[str]:
        if not len(inputs):
            return []
        if self._vision is None:
            self.load()
        assert self._vision is not None
        model = self._vision.model
        if self._columns is None:
            scores = unit(self._vision.run(inputs, self._vision.features)) @ self._vectors.T
        else:
            scores = self._vision.run(inputs, lambda pixels: model(**pixels).logits)[:, self._columns]
        return [self._labels[i] for i in scores.argmax(1)]


def as_rgb(image: NDArray) -> NDArray:
    """Return an image with three channels of bytes: grey is repeated, transparency left out.

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


def unit(vectors: NDArray) -> NDArray:
    """Return vectors of length one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)  # type: ignore[no-any-return]


def _tensor(output: Any) -> Any:
    """Return the features themselves; newer versions of transformers wrap them."""
    return output.pooler_output if hasattr(output, "pooler_output") else output


def _has_trained_pooler(checkpoint: Checkpoint) -> bool:
    """Return whether the pooler, if the model has one with weights, is in the checkpoint.

    A backbone taken from a classifier has none there: its pooler would be random, and the class token is used instead.
    """
    config = checkpoint.config()
    is_head = any(name.endswith("ForImageClassification") for name in config.get("architectures") or [])
    return not (is_head and config.get("model_type") in ("vit", "deit", "beit", "dinov2_with_registers"))
