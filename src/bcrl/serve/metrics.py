"""What Prometheus reads at /metrics."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from bcrl.serve.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests are counted as they come; the rest is read from the store when it is asked for."""

    def __init__(self, store: Store):
        disable_created_metrics()  # a time of creation beside each number
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bcrl_requests", "Requests answered", ["request", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "bcrl_request_seconds",
            "Seconds to an answer, the disk included",
            ["request"],
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
            registry=self.registry,
        )
        self.registry.register(_Episodes(store))
        ProcessCollector(registry=self.registry)

    def count(self, request: str, status: int, seconds: float) -> None:
        """One answered request."""
        self._requests.labels(request, str(status)).inc()
        self._seconds.labels(request).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Episodes:
    def __init__(self, store: Store):
        self._store = store

    def collect(self) -> Iterator[Any]:
        store = self._store
        yield GaugeMetricFamily("bcrl_episodes_running", "Episodes that have not ended", store.running)
        ended = CounterMetricFamily(
            "bcrl_episodes_ended", "Episodes that ended, since the start", labels=["how"]
        )
        for how, count in store.ended.items():
            ended.add_metric([how], count)
        yield ended
        yield CounterMetricFamily("bcrl_actions", "Actions chosen, since the start", store.steps)
        yield CounterMetricFamily(
            "bcrl_fallback_actions", "Of these, chosen by the fallback", store.fallbacks
        )
        yield GaugeMetricFamily("bcrl_journal_bytes", "Size of the journal", store.journal_bytes)
