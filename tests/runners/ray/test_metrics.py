"""Counters of functions that actors call, and their rows on the dashboard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.dashboard.cluster import cluster_state
from penstock.dashboard.process import start_dashboard, stop_dashboard
from penstock.runners.ray.worker import NUM_SHOWN
from tests.dashboard.test_server import ask


@contextmanager
def shown_rows() -> Iterator[list[Any]]:
    """Yield a list that has the rows on the dashboard after the block."""
    dashboard, rows = start_dashboard(), list[Any]()
    try:
        yield rows
        while not rows:  # they are fetched on a thread
            rows += json.loads(ask(dashboard, "GET", "/api/rows")[2])["rows"]
    finally:
        stop_dashboard()


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

    with shown_rows() as rows, ps.config(runner="ray", dashboard=True):
        ps.from_pydict({"x": [3]}).with_column("half", halve(ps.col("x"))).collect()
    assert rows[0]["error"]["message"] == "odd"
    assert [cell and cell["text"] for cell in rows[0]["cells"]] == ["3", None]


@pytest.mark.ray
def test_the_dashboard_shows_rows_that_actors_write(ray_cluster: None, tmp_path: Path) -> None:
    @ps.func.batch(return_dtype=ps.DataType.string(), batch_size=100)
    def lengthen(x: ps.Series) -> list[str]:
        return [f"{number}" + "." * 50_000 for number in x.to_pylist()]

    with shown_rows() as rows, ps.config(runner="ray", dashboard=True, memory_limit="64MB"):
        ps.range(100).with_column("y", lengthen(ps.col("id"))).write_parquet(str(tmp_path / "out"))
    assert len(rows) == NUM_SHOWN
    assert [[cell["text"][:2] for cell in row["cells"]] for row in rows][-2:] == [["1", "1."], ["0", "0."]]


@pytest.mark.ray
def test_the_page_gets_the_nodes_and_how_busy_they_are(ray_cluster: None) -> None:
    """From Ray's functions and the metrics of the node's agent, which come some seconds after the start."""
    while (state := cluster_state()) is None or state["nodes"][0]["cpu_busy"] is None:
        time.sleep(0.1)
    (node,) = state["nodes"]
    assert (node["is_alive"], node["cpu"], node["gpus_busy"]) == (True, 2, {})
    assert 0 <= node["cpu_busy"] <= 1
    assert node["memory_used"] > 0
