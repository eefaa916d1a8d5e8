"""The packages of the extra ``images``, loaded on first use."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from penstock.errors import MissingExtraError

DISTRIBUTIONS = {"PIL": "Pillow", "cv2": "opencv-python-headless", "simplejpeg": "simplejpeg"}


def require_images(feature: str) -> None:
    """Raise MissingExtraError unless all packages are installed. Does not import them."""
    for module, distribution in DISTRIBUTIONS.items():
        try:
            is_there = importlib.util.find_spec(module) is not None
        except ValueError:  # sys.modules has None for it
            is_there = False
        if not is_there:
            raise MissingExtraError(distribution, "images", feature)


@functools.cache
def opencv() -> Any:
    """Return ``cv2`` with one thread per call, since the engine's threads already use every core."""
    cv2 = _load("cv2")
    cv2.setNumThreads(1)
    return cv2


@functools.cache
def simplejpeg() -> Any:
    return _load("simplejpeg")


@functools.cache
def pillow(module: str = "Image") -> Any:
    """Return a module of Pillow."""
    return _load(f"PIL.{module}")


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingExtraError(DISTRIBUTIONS[module.partition(".")[0]], "images", "Working on images") from exc
