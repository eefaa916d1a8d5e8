"""The packages of the extra ``images``, loaded on first use."""

from __future__ import annotations

import functools
from typing import Any

from penstock.errors import load_extra, require_extra

FEATURE = "Working on images"


def require_images(feature: str) -> None:
    """Raise MissingExtraError unless all packages are installed. Does not import them."""
    for module in ("PIL", "cv2", "simplejpeg"):
        require_extra(module, "images", feature)


@functools.cache
def opencv() -> Any:
    """Return ``cv2`` with one thread per call, since the engine's threads already use every core."""
    cv2 = load_extra("cv2", "images", FEATURE)
    cv2.setNumThreads(1)
    return cv2


@functools.cache
def simplejpeg() -> Any:
    return load_extra("simplejpeg", "images", FEATURE)


@functools.cache
def pillow(module: str = "Image") -> Any:
    """Return a module of Pillow."""
    return load_extra(f"PIL.{module}", "images", FEATURE)
