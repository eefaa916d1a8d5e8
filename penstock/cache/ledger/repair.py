"""Opening a log that may be damaged: what can be read is kept, and the query goes on."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import numpy as np

from penstock.cache.ledger.segment import DamagedHeaderError, Segment

log = logging.getLogger("penstock.cache.ledger")

_COPIED_AT_ONCE = 1024


def open_segment(path: Path) -> Segment | None:
    """Open a log; one that nobody writes is checked and repaired. None if nothing of it can be read."""
    try:
        segment = Segment(path)
    except DamagedHeaderError:
        return _salvaged(path)
    if segment.is_writable and segment.try_lock():
        try:
            segment.repair()
        finally:
            segment.unlock()
    return segment


def _salvaged(path: Path) -> Segment | None:
    """Put what records a file without a proper beginning holds into a new one, then the file aside."""
    segment, num_kept = None, 0
    damaged = Segment(path, has_header=False)
    try:
        entries = damaged.scan(0)
        for start in range(0, len(entries), _COPIED_AT_ONCE):
            segment = segment or Segment.create(path.parent)
            part = entries[start : start + _COPIED_AT_ONCE]
            segment.append_copies(damaged, part, np.zeros(len(part), np.uint32))
            num_kept += len(part)
    finally:
        damaged.close()
    aside = _free_name(path)
    with contextlib.suppress(FileNotFoundError):  # another process was quicker: both have kept the same
        path.rename(aside)
    log.warning(
        "%s does not begin as a ledger file does: it was moved to %s, and %d records that can be read in it are kept",
        *(path, aside.name, num_kept),
    )
    if segment is not None:
        segment.unlock()
        segment.num_rows = 0  # its entries are still to be loaded
    return segment


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return aside
