"""Import optional packages on demand; the error for a missing one names its extra."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.errors import MissingExtraError


def load_extra(module: str, extra: str, feature: str) -> Any:
    """Import a module of an optional package, or say how to install it.

    >>> load_extra("no_such_package.part", "lance", "read_lance")
    Traceback (most recent call last):
    ...
    penstock.errors.MissingExtraError: read_lance needs 'no_such_package', which is not installed.
    Run: pip install "penstock[lance]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingExtraError(module.partition(".")[0], extra, feature) from exc
