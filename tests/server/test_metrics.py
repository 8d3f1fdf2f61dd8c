"""Every metric is documented, and counts what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from synth.topology import Topology
from tests.server import fake_solver as fake
from tests.server.conftest import make_plan, post_topology, wait_for_job

DOCS = Path(__file__).parents[2] / "docs" / "service.md"


def scrape(client: TestClient) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_the_documentation_lists_every_metric(client: TestClient) -> None:
    client.get("/livez")
    text = client.get("/metrics").text
    served = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    served = {name for name in served if not name.endswith("_created")}
    rows = set(re.findall(r"^\| `(synth_[a-z_]+)`", DOCS.read_text(), re.MULTILINE))
    assert rows == served
    assert all(name.startswith("synth_") for name in served)


def test_requests_are_counted_by_template(client: TestClient) -> None:
    for path in ("/v1/jobs/0000000000000000", "/v1/jobs/1111111111111111", "/nothing", "/something"):
        client.get(path)
    counted = scrape(client)
    assert counted['synth_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"}'] == 2
    assert counted['synth_http_requests_total{method="GET",route="none",status="404"}'] == 2
    assert counted['synth_problems_total{code="not-found"}'] == 2
    assert counted['synth_problems_total{code="path"}'] == 2


def test_jobs_and_solves_are_counted(client: TestClient, machine: Topology) -> None:
    stored: dict[str, Any] = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    make_plan(client, **ask)
    failed = client.post("/v1/plans", json=ask | {"seed": fake.INFEASIBLE}).json()["job"]["id"]
    wait_for_job(client, failed)
    counted = scrape(client)
    assert counted['synth_jobs{state="done"}'] == 1
    assert counted['synth_jobs{state="failed"}'] == 1
    assert counted['synth_jobs{state="queued"}'] == 0
    assert counted['synth_jobs_ended_total{state="failed"}'] == 1
    assert counted['synth_solve_duration_seconds_count{collective="alltoall"}'] == 1
    assert counted["synth_plans"] == 1
    assert counted["synth_database_up"] == 1


def test_without_a_database_the_metrics_say_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.errors import StorageUnavailable

    def fail() -> None:
        raise StorageUnavailable("away")

    monkeypatch.setattr(client.app.state.context.database, "read", fail)  # type: ignore[attr-defined]
    assert scrape(client)["synth_database_up"] == 0
    response = client.get("/readyz")
    assert (response.status_code, response.json()["code"]) == (503, "storage")
    assert client.get("/livez").status_code == 200
