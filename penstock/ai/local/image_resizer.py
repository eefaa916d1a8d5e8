"""Resize, crop and normalize images on the device, many at once, as image processors of transformers do on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.local.tokens import to_device
from penstock.ai.provider import NDArray

KNOWN = tuple(f"{family}ImageProcessor" for family in ("ViT", "CLIP", "Siglip", "DeiT", "Bit", "DINOv3ViT"))
"""Processors that only resize, crop, scale and normalize. DINOv2 has the one of BiT."""

MODES = {2: "bilinear", 3: "bicubic"}  # by the numbers of Pillow


@dataclass(frozen=True)
class ImageResizer:
    """The settings of an image processor. ``size`` is a height and a width, or one number for the shorter edge."""

    size: tuple[int, ...] | None
    mode: str
    crop: tuple[int, int] | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, images: Sequence[NDArray], device: Any) -> Any:
        """Return the input of a model for images of bytes, height x width x 3. Images of one shape go together."""
        import torch

        shapes: dict[tuple[int, ...], list[int]] = {}
        for row, image in enumerate(images):
            shapes.setdefault(image.shape, []).append(row)
        parts = [self._resized(_stacked([images[row] for row in rows], device)) for rows in shapes.values()]
        order = np.argsort(np.concatenate([np.array(rows) for rows in shapes.values()]), kind="stable")
        found = torch.cat(parts)[to_device(order, device)] if len(parts) > 1 else parts[0]
        constants = (np.array(values, np.float32).reshape(3, 1, 1) for values in (self.mean, self.std))
        mean, std = (to_device(values, device) for values in constants)
        return (found * self.scale - mean) / std

    def _resized(self, images: Any) -> Any:
        import torch

        pixels = images.permute(0, 3, 1, 2).float()
        size = self._target(*pixels.shape[2:])
        if size != tuple(pixels.shape[2:]):
            pixels = torch.nn.functional.interpolate(pixels, size, mode=self.mode, antialias=True, align_corners=False)
            pixels = pixels.round_().clamp_(0, 255)  # Pillow returns bytes
        return pixels if self.crop is None else _center(pixels, *self.crop)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if len(self.size) == 2:
            return self.size[0], self.size[1]
        edge = self.size[0]
        return (edge, int(edge * width / height)) if height <= width else (int(edge * height / width), edge)


def _stacked(images: Sequence[NDArray], device: Any) -> Any:
    """Copy images with equal shapes to a device, as one tensor; to a GPU from pinned memory, without waiting."""
    import torch

    shape = (len(images), *images[0].shape)
    host = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
    np.stack(images, out=host.numpy())
    return host.to(device, non_blocking=True)


def _center(pixels: Any, height: int, width: int) -> Any:
    """Return the middle of images; a smaller image gets a black border."""
    import torch

    missing_y, missing_x = max(0, height - pixels.shape[2]), max(0, width - pixels.shape[3])
    if missing_y or missing_x:
        border = (missing_x // 2 + missing_x % 2, missing_x // 2, missing_y // 2 + missing_y % 2, missing_y // 2)
        pixels = torch.nn.functional.pad(pixels, border)
    top, left = (pixels.shape[2] - height) // 2, (pixels.shape[3] - width) // 2
    return pixels[:, :, top : top + height, left : left + width]


def resizer_of(processor: Any) -> ImageResizer | None:
    """Return the resizer with the settings of a processor, None for a processor that does more."""
    name = type(processor).__name__.removesuffix("Fast").removesuffix("Pil")
    is_resized = bool(getattr(processor, "do_resize", False))
    mode = MODES.get(int(getattr(processor, "resample", None) or 2))
    if name not in KNOWN or mode is None:
        return None
    crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else None
    size = dict(processor.size) if is_resized else {}
    edges = [size[key] for key in ("height", "width", "shortest_edge") if size.get(key) is not None]
    is_normalized = bool(processor.do_normalize)
    return ImageResizer(
        tuple(edges) or None,
        mode,
        None if crop is None else (crop["height"], crop["width"]),
        float(processor.rescale_factor) if processor.do_rescale else 1.0,
        tuple(processor.image_mean) if is_normalized else (0.0, 0.0, 0.0),
        tuple(processor.image_std) if is_normalized else (1.0, 1.0, 1.0),
    )
