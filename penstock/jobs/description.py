"""What a job is: its query, its inputs and what it writes, as data that the next run compares with its own."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.io.writer import FileSink
from penstock.jobs.account import Account
from penstock.jobs.captured import described_here, queries_here
from penstock.plan.identity.fingerprint import changed_inputs, changes, fingerprint
from penstock.plan.nodes import Plan

FORMAT = 1  # of what a job's folder holds


class Description:
    """That of a run. ``data`` is what is kept; ``known`` is always that of the run before."""

    def __init__(self, plan: Plan, sink: FileSink) -> None:
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "era": secrets.token_hex(8),
            # Another one may cut sources into other parts.
            "read_by": [getattr(sys.modules["penstock"], "__version__", ""), os.cpu_count()],
            "query": fingerprint(plan),
            "in_one_process": described_here(plan),
            "output": {"format": sink.encoding.suffix, "partition_cols": list(sink.partition_cols)},
        }

    @property
    def era(self) -> str:
        """What stays the same from run to run as long as rows have the same numbers in the same reads."""
        return str(self.data["era"])

    def keep_era(self, known: Mapping[str, Any]) -> None:
        self.data["era"] = known.get("era", "")

    def is_read_alike(self, known: Mapping[str, Any]) -> bool:
        """Say whether sources are sure to be cut as they were."""
        return bool(known.get("read_by") == self.data["read_by"])

    def differences(self, known: Mapping[str, Any]) -> list[str]:
        """Return what has changed, a sentence each."""
        if known.get("format") != FORMAT:
            return [f"it was begun by another version of Penstock (format {known.get('format')}, not {FORMAT})"]
        then, now = known["output"], self.data["output"]
        others = [f"{name} was {then.get(name)!r} and is {now[name]!r}" for name in now if then.get(name) != now[name]]
        return [*changes(*self._queries(known)), *others]

    def stale_reads(self, known: Mapping[str, Any], differences: Sequence[str], account: Account) -> set[int]:
        """Return the reads whose rows are not what they were; all of them if it is the query that changed."""
        if not differences:
            return set()
        changed = None
        if known.get("format") == FORMAT and known["output"] == self.data["output"]:
            changed = changed_inputs(*self._queries(known))
        if changed is None:
            return set(account.reads.values())
        return {number for key, number in account.reads.items() if key.input in changed or not key.input}

    def _queries(self, known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query as it was and as it is, to be compared."""
        here = queries_here(known["in_one_process"], self.data["in_one_process"])
        return here or (known["query"], self.data["query"])
