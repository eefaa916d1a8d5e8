"""The figures of queries as Prometheus and OpenTelemetry see them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import prometheus_client
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import penstock as ps
from penstock.observe.exporters import Exporter, opentelemetry_exporter, prometheus_exporter
from penstock.testing import ModelServer


@contextmanager
def attached(exporter: Exporter) -> Iterator[None]:
    ps.attach_subscriber(exporter)
    yield
    ps.detach_subscriber(exporter)


@ps.func(on_error="ignore", use_process=False)
def fail_at_three(x: int) -> int:
    ps.metrics.increment_counter("seen")
    ps.metrics.set_gauge("level", 7)
    if x == 3:
        raise ValueError(x)
    return x


def test_prometheus(model_server: ModelServer) -> None:
    registry = prometheus_client.CollectorRegistry()
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    with attached(prometheus_exporter(registry=registry)):
        for _ in range(2):
            ps.range(5).select(fail_at_three(ps.col("id"))).collect()
        ps.from_pydict({"q": ["a", "b"]}).select(ps.prompt(ps.col("q"), model="gpt-5-mini")).collect()
    value = registry.get_sample_value
    assert value("penstock_rows_total", {"stage": "udf fail_at_three"}) == 10
    assert value("penstock_failed_rows_total", {"stage": "udf fail_at_three"}) == 2
    assert value("penstock_queries_total", {"outcome": "finished"}) == 3
    assert value("penstock_counter_total", {"name": "seen"}) == 10
    assert value("penstock_gauge", {"name": "level"}) == 7
    assert value("penstock_calls_total", {"provider": "openai", "model": "gpt-5-mini"}) == 2
    assert (value("penstock_dollars_total", {"provider": "openai", "model": "gpt-5-mini"}) or 0) > 0
    assert value("penstock_running_tasks", {"stage": "udf fail_at_three"}) == 0


def test_opentelemetry() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with attached(opentelemetry_exporter(provider.get_meter("penstock"))):
        ps.range(5).select(fail_at_three(ps.col("id"))).collect()
    data: Any = reader.get_metrics_data()
    provider.shutdown()
    points = {
        (metric.name, *dict(point.attributes).values()): point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert points["penstock_rows", "udf fail_at_three"] == 5
    assert points["penstock_counter", "seen"] == 5
    assert points["penstock_gauge", "level"] == 7


def test_a_query_loads_no_exporter() -> None:
    code = "import sys, penstock as ps; ps.range(3).where(ps.col('id') > 1).collect(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"prometheus_client", "opentelemetry", "penstock.observe.exporters", "rich"} & set(loaded)
