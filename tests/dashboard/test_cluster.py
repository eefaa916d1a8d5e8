"""The page of a query on Ray shows its nodes and how busy they are; a hidden page tells of the end. In Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from penstock.dashboard.cluster import use_in
from penstock.dashboard.server import DashboardServer
from tests.dashboard.test_live import Running, check_access

HIDDEN_TAB = """
    Object.defineProperty(document, "hidden", { get: () => true });
    window.seen = [];
    window.Notification = class extends Notification {
        constructor(title, options) { super(title, options); window.seen.push([title, options.body]); }
    };
"""


def test_a_hidden_page_notifies_at_the_end(dashboard: DashboardServer, page: Page) -> None:
    """With the notifications of the browser, which are noted on their way."""
    page.context.grant_permissions(["notifications"])
    page.add_init_script(HIDDEN_TAB)
    with Running() as running:
        page.goto(dashboard.url)
        expect(page.locator("#query-state")).to_have_text("running")
        expect(page.get_by_role("button", name="Notify me")).to_have_count(0)  # it is allowed
        running.release.set()
        expect(page.locator("#query-state")).to_have_text("finished")
    ((title, body),) = page.evaluate("window.seen")
    assert title.endswith("udf halve finished")
    assert body.startswith("1 row failed, ")


def test_the_use_of_gpus_is_in_the_metrics_of_a_node() -> None:
    """As an agent of Ray writes them on a node with two GPUs."""
    labels = 'GpuDeviceName="NVIDIA H200",GpuIndex="{}",ip="10.0.0.7",otel_scope_version=""'
    gauges = [f"ray_node_gpus_utilization{{{labels.format(gpu)}}} {use}" for gpu, use in ((0, 97.0), (1, 0.0))]
    metrics = "\n".join(["# TYPE ray_node_gpus_utilization gauge", *gauges, 'ray_node_mem_used{ip="10.0.0.7"} 2.5e+09'])
    assert use_in(metrics) == {"cpu_busy": None, "gpus_busy": {"0": 0.97, "1": 0.0}, "memory_used": 2.5e9}


def test_the_nodes_and_actors_of_a_cluster(
    dashboard: DashboardServer, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``cluster_state`` gives them, which a test of the runner on Ray checks."""
    busy = {"cpu_busy": 0.5, "gpus_busy": {"0": 0.97, "1": 0.12}, "memory_used": 3e9}
    silent = {"cpu_busy": None, "gpus_busy": {}, "memory_used": None}
    node = {"address": "10.0.0.7", "is_alive": True, "gpu_kind": "H200", "cpu": 8.0, "gpu": 2.0, "memory": 9e9}
    nodes = [node | busy | {"id": "a", "name": "first"}, node | silent | {"id": "b", "name": "second"}]
    free = {"cpu": 4.0, "gpu": 1.0, "memory": 9e9}
    state = {"nodes": nodes, "free": free, "actors": [{"name": "embedder", "node": "a", "pid": 71}]}
    monkeypatch.setattr("penstock.dashboard.live.cluster_state", lambda: state)
    with Running():
        page.goto(dashboard.url)
        lines = page.locator("#nodes tbody tr")
        expect(lines.nth(0)).to_contain_text("0: 97 %, 1: 12 %")
        expect(lines.nth(1).get_by_text("not reported")).to_have_count(3)
        expect(lines.nth(2)).to_contain_text("12 of 16 taken")
        expect(page.locator("#actors tbody tr")).to_contain_text("embedderfirst71")
        page.set_viewport_size({"width": 390, "height": 800})
        check_access(page)
