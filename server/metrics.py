"""Prometheus metrics: names with the ``synth_`` prefix, base units, bounded labels; ``docs/service.md`` lists them."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from server.store import Database, jobs, nodes, plans
from synth.errors import ServiceError

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SOLVE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
GAPS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1)


class Metrics:
    """All metrics of one server, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "synth_http_requests_total", "Requests answered", ("method", "route", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "synth_http_request_duration_seconds",
            "Time to answer",
            ("method", "route"),
            buckets=REQUEST_SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge("synth_http_requests_in_progress", "Requests being answered", registry=registry)
        self.problems = Counter("synth_problems_total", "Problems answered", ("code",), registry=registry)
        self.waiting = Gauge("synth_resolve_waiting", "Requests that wait for a plan", registry=registry)
        self._jobs = Gauge("synth_jobs", "Jobs by state", ("state",), registry=registry)
        self._oldest = Gauge("synth_jobs_oldest_queued_seconds", "Age of the job that waits longest", registry=registry)
        self._ended = Counter("synth_jobs_ended_total", "Jobs that ended on this server", ("state",), registry=registry)
        self._solve_seconds = Histogram(
            "synth_solve_duration_seconds", "Time of a solve", ("collective",), buckets=SOLVE_SECONDS, registry=registry
        )
        self._gap = Histogram(
            "synth_solve_gap_ratio",
            "Predicted time over proven bound, less one",
            ("collective",),
            buckets=GAPS,
            registry=registry,
        )
        self._plans = Gauge("synth_plans", "Plans stored", registry=registry)
        self._nodes = Gauge("synth_nodes", "Nodes that reported", registry=registry)
        self._findings = Gauge("synth_node_findings", "Findings in the latest reports of all nodes", registry=registry)
        self._report_age = Gauge(
            "synth_node_report_age_seconds_max",
            "Age of the latest report of the node silent longest",
            registry=registry,
        )
        self._up = Gauge("synth_database_up", "Whether the database answered this scrape", registry=registry)
        Gauge("synth_build_info", "Version of synth", ("version",), registry=registry).labels(version).set(1)

    def solved(self, collective: str, seconds: float, gap: float | None) -> None:
        """Count a solve that gave a plan."""
        self._solve_seconds.labels(collective).observe(seconds)
        if gap is not None:
            self._gap.labels(collective).observe(gap)

    def job_ended(self, state: jobs.State) -> None:
        """Count a job that ended here."""
        self._ended.labels(state.value).inc()

    def scrape(self, database: Database) -> bytes:
        """The text that Prometheus reads; figures from the database are fresh, or 0 with ``synth_database_up`` 0."""
        try:
            self._read(database)
            self._up.set(1)
        except ServiceError:
            self._up.set(0)
        return generate_latest(self.registry)

    def _read(self, database: Database) -> None:
        now = time.time()
        with database.read() as connection:
            for state, count in jobs.counts(connection).items():
                self._jobs.labels(state.value).set(count)
            oldest = jobs.oldest_queued(connection)
            self._oldest.set(0 if oldest is None else max(now - oldest, 0))
            self._plans.set(plans.count(connection))
            count, findings, earliest = nodes.summary(connection)
        self._nodes.set(count)
        self._findings.set(findings)
        self._report_age.set(0 if earliest is None else max(now - earliest, 0))
