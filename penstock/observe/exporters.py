"""Pass the figures of all queries to Prometheus or OpenTelemetry.

    ps.attach_subscriber(prometheus_exporter(port=9464))
    ps.attach_subscriber(opentelemetry_exporter())

Stages have the label ``stage``, models ``provider`` and ``model``, metrics of functions ``name``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import require_extra
from penstock.events.events import (
    BundleProduced,
    Event,
    Measures,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    RowsFailed,
)
from penstock.protocols import Subscriber

Labels = dict[str, str]
Record = Callable[[str, float, Labels], None]


class Exporter:
    """Passes on the figures of a query: growing totals to ``add``, momentary values to ``set_value``."""

    def __init__(self, add: Record, set_value: Record) -> None:
        self._add, self._set = add, set_value
        self._stages: list[Labels] = []
        self._totals: dict[tuple[str, ...], float] = {}  # totals of models and counters, as last added

    def for_query(self) -> Subscriber:
        return Exporter(self._add, self._set)

    def on_event(self, event: Event) -> None:
        match event:
            case QueryStarted(stages):
                self._stages = [{"stage": info.name} for info in stages]
            case BundleProduced(stage, num_rows, nbytes, busy_s):
                self._add("penstock_rows", num_rows, self._stages[stage])
                self._add("penstock_bytes", nbytes, self._stages[stage])
                self._add("penstock_busy_seconds", busy_s, self._stages[stage])
            case RowsFailed(stage, errors):
                self._add("penstock_failed_rows", len(errors), self._stages[stage])
            case QuerySampled():
                for sample in event.stages:
                    self._set("penstock_running_tasks", sample.num_running, self._stages[sample.stage])
                    self._set("penstock_queued_bytes", sample.nbytes_queued, self._stages[sample.stage])
                self._set("penstock_held_bytes", event.nbytes_held, {})
                self._add_measures(event.measures)
            case QueryFinished(error):
                self._add("penstock_queries", 1, {"outcome": "finished" if error is None else "failed"})

    def _add_measures(self, measures: Measures) -> None:
        for use in measures.models:
            labels = {"provider": use.provider, "model": use.model}
            self._add_total("penstock_calls", use.num_calls, labels)
            self._add_total("penstock_cached_calls", use.num_cached, labels)
            self._add_total("penstock_retried_calls", use.num_retried, labels)
            self._add_total("penstock_input_tokens", use.input_tokens, labels)
            self._add_total("penstock_output_tokens", use.output_tokens, labels)
            self._add_total("penstock_dollars", use.dollars or 0.0, labels)
        for name, value in measures.counters:
            self._add_total("penstock_counter", value, {"name": name})
        for name, value in measures.gauges:
            self._set("penstock_gauge", value, {"name": name})

    def _add_total(self, name: str, total: float, labels: Labels) -> None:
        """Add the growth of a total since the last call."""
        key = (name, *labels.values())
        if (grown := total - self._totals.get(key, 0)) > 0:
            self._totals[key] = total
            self._add(name, grown, labels)


def prometheus_exporter(port: int | None = None, registry: Any = None) -> Exporter:
    """Return an exporter for ``prometheus_client``; with ``port`` it also serves ``http://localhost:port/metrics``."""
    require_extra("prometheus_client", "prometheus", "prometheus_exporter")
    import prometheus_client

    registry = registry or prometheus_client.REGISTRY
    known: dict[str, Any] = {}

    def metric(kind: Any, name: str, labels: Labels) -> Any:
        if name not in known:
            known[name] = kind(name, name.replace("_", " "), list(labels), registry=registry)
        return known[name].labels(**labels) if labels else known[name]

    if port is not None:
        prometheus_client.start_http_server(port, addr="127.0.0.1", registry=registry)
    return Exporter(
        lambda name, by, labels: metric(prometheus_client.Counter, name, labels).inc(by),
        lambda name, value, labels: metric(prometheus_client.Gauge, name, labels).set(value),
    )


def opentelemetry_exporter(meter: Any = None) -> Exporter:
    """Return an exporter for a meter of OpenTelemetry; by default one of the global meter provider."""
    require_extra("opentelemetry", "opentelemetry", "opentelemetry_exporter")
    from opentelemetry import metrics

    meter = meter or metrics.get_meter("penstock")
    known: dict[str, Any] = {}

    def instrument(create: Callable[[str], Any], name: str) -> Any:
        if name not in known:
            known[name] = create(name)
        return known[name]

    return Exporter(
        lambda name, by, labels: instrument(meter.create_counter, name).add(by, labels),
        lambda name, value, labels: instrument(meter.create_gauge, name).set(value, labels),
    )
