"""Modes of writing to a place that may exist."""

from __future__ import annotations

from penstock.errors import InvalidArgumentError, did_you_mean

MODES = ("create", "append", "overwrite")


def check_mode(mode: str) -> None:
    """Refuse an unknown mode.

    >>> check_mode("overwrit")
    Traceback (most recent call last):
    ...
    penstock.errors.InvalidArgumentError: mode='overwrit' is not known; use one of create, append, overwrite. \
Did you mean 'overwrite'?
    """
    if mode not in MODES:
        raise InvalidArgumentError(
            f"mode={mode!r} is not known; use one of {', '.join(MODES)}.{did_you_mean(str(mode), MODES)}"
        )
