"""Opening a log that may be damaged: what can be read is kept, and the query goes on."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from penstock.ledger.record import keys_of
from penstock.ledger.segment import DamagedHeaderError, Segment, header

log = logging.getLogger("penstock.ledger")


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
    """Put a file without a proper beginning aside, and what records it holds into a new one."""
    aside = _free_name(path)
    path.rename(aside)
    found = _records_in(aside)
    log.warning(
        "%s does not begin as a ledger file does: it was moved to %s, and %d records that can be read in it are kept",
        *(path, aside.name, len(found)),
    )
    if not found:
        return None
    segment = Segment.create(path.parent)
    segment.append(found, int(time.time()))
    segment.unlock()
    segment.num_rows = 0  # its entries are still to be loaded
    return segment


def _records_in(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the (key, value) pairs that can be found in a file."""
    # A copy with a proper beginning is what Segment can read; a hole costs nothing, and the name is gone at once.
    whole = path.read_bytes()
    copy = path.with_name(f"{path.name}.reading")
    try:
        copy.write_bytes(header() + whole[len(header()) :])
        segment = Segment(copy)
    finally:
        copy.unlink(missing_ok=True)
    try:
        entries = segment.scan(len(header()))
        keys = keys_of(entries)
        values = segment.read(keys, entries["offset"], entries["length"])
        return [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    finally:
        segment.close()


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return aside
