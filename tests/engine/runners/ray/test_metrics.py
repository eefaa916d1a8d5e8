"""Counters of functions that actors call, and their rows on the dashboard."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock as ps
from penstock.observe.dashboard.process import start_dashboard, stop_dashboard
from tests.observe.dashboard.test_server import ask


def count(batch: dict[str, Any]) -> dict[str, Any]:
    ps.metrics.increment_counter("rows", len(batch["id"]))
    return batch


@pytest.mark.ray
def test_counters_add_up_over_actors(ray_cluster: None) -> None:
    with ps.config(runner="ray"):
        df = ps.range(1000).map_batches(count, batch_size=100).collect()
    assert df.stats().counters == {"rows": 1000}


@pytest.mark.ray
def test_the_dashboard_shows_rows_that_actors_hold(ray_cluster: None) -> None:
    @ps.func(on_error="ignore")
    def halve(x: int) -> int:
        raise ValueError("odd")

    dashboard, rows = start_dashboard(), list[Any]()
    try:
        with ps.config(runner="ray", dashboard=True):
            ps.from_pydict({"x": [3]}).with_column("half", halve(ps.col("x"))).collect()
        while not rows:  # they are fetched on a thread
            rows = json.loads(ask(dashboard, "GET", "/api/rows")[2])["rows"]
    finally:
        stop_dashboard()
    assert rows[0]["error"]["message"] == "odd"
    assert [cell and cell["text"] for cell in rows[0]["cells"]] == ["3", None]
