"""Describe a job as data that the next run compares with its own: the query, its inputs and the output format."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from penstock.io.writer import FileSink
from penstock.jobs.state import JobState
from penstock.plan.identity.differences import changed_inputs, differences
from penstock.plan.identity.fingerprint import fingerprint
from penstock.plan.nodes import Plan

FORMAT = 3  # the version of the folder's layout


class Description:
    """The description of one run. ``data`` is stored as JSON; ``known`` is the stored data of the previous run."""

    def __init__(self, plan: Plan, sink: FileSink) -> None:
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "era": secrets.token_hex(8),
            # Another version of Penstock or another number of cores may split sources into other tasks.
            "read_by": [getattr(sys.modules["penstock"], "__version__", ""), os.cpu_count()],
            "query": fingerprint(plan),
            "output": {"format": sink.encoding.suffix, "partition_cols": list(sink.partition_cols)},
        }

    @property
    def era(self) -> str:
        """An id that stays the same over runs as long as rows keep their numbers in the same reads."""
        return str(self.data["era"])

    def keep_era(self, known: Mapping[str, Any]) -> None:
        self.data["era"] = known.get("era", "")

    def has_same_reads(self, known: Mapping[str, Any]) -> bool:
        """Return True if sources are certainly split into the same tasks as before."""
        return bool(known.get("read_by") == self.data["read_by"])

    def differences(self, known: Mapping[str, Any]) -> list[str]:
        """Return a sentence for each thing that changed."""
        if known.get("format") != FORMAT:
            return [f"another version of Penstock began it (format {known.get('format')}, not {FORMAT})"]
        return [*differences(known["query"], self.data["query"]), *differences(known["output"], self.data["output"])]

    def stale_reads(self, known: Mapping[str, Any], state: JobState) -> set[int]:
        """Return the reads whose rows changed: the reads of changed inputs, or all reads if the query changed."""
        changed = None
        if known.get("format") == FORMAT and known["output"] == self.data["output"]:
            changed = changed_inputs(known["query"], self.data["query"])
        if changed is None:
            return set(state.reads.values())
        if not changed:
            return set()
        return {number for key, number in state.reads.items() if key.input in changed or not key.input}
