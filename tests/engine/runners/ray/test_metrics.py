"""Counters of functions that actors call."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps


def count(batch: dict[str, Any]) -> dict[str, Any]:
    ps.metrics.increment_counter("rows", len(batch["id"]))
    return batch


@pytest.mark.ray
def test_counters_add_up_over_actors(ray_cluster: None) -> None:
    with ps.config(runner="ray"):
        df = ps.range(1000).map_batches(count, batch_size=100).collect()
    assert df.stats().counters == {"rows": 1000}
