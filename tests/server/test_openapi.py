"""The committed OpenAPI document, and the service held against it by schemathesis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

import server
from server import openapi
from tests.server.conftest import start_server, stop_server

COMMITTED = Path(server.__file__).parent / "openapi.json"


def test_the_committed_document_is_the_applications(client: TestClient) -> None:
    text = openapi.dumps(client.app)  # type: ignore[arg-type]
    assert COMMITTED.read_text() == text, "run: python -m server.openapi > server/openapi.json"
    assert client.get("/openapi.json").json() == json.loads(text)


def test_every_operation_says_what_can_go_wrong() -> None:
    document = json.loads(COMMITTED.read_text())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {"4XX", "5XX"} <= set(operation["responses"]), (method, path)
            content = operation["responses"]["4XX"]["content"]
            assert list(content) == ["application/problem+json"]
            assert operation["description"], (method, path)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_paths_are_those_of_the_design() -> None:
    assert sorted(json.loads(COMMITTED.read_text())["paths"]) == [
        "/livez",
        "/metrics",
        "/readyz",
        "/v1/books",
        "/v1/groups",
        "/v1/jobs",
        "/v1/jobs/{id}",
        "/v1/nodes",
        "/v1/nodes/{name}",
        "/v1/nodes/{name}/topology",
        "/v1/placements",
        "/v1/plans",
        "/v1/plans/{digest}",
        "/v1/plans/{digest}/export/{format}",
        "/v1/plans/{digest}/ranks/{rank}",
        "/v1/rendezvous/{job}",
        "/v1/rendezvous/{job}/{key}",
        "/v1/resolve",
        "/v1/simulate",
        "/v1/telemetry",
        "/v1/telemetry/{topology}",
        "/v1/topologies",
        "/v1/topologies/{name}",
        "/v1/verify",
        "/version",
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--workers", "0", "--max-wait", "0.2")  # generated requests wait in vain, for any time they like
    server = start_server(tmp_path_factory.mktemp("openapi"), *flags)
    yield server.url
    stop_server(server)


schema = schemathesis.openapi.from_path(COMMITTED)


@schema.parametrize()
@settings(max_examples=4, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_generated_requests_get_what_the_document_says(case: Case, url: str) -> None:
    """A few for each operation, sensible and not: never a 5xx, every answer of a documented shape."""
    case.call_and_validate(
        base_url=url,
        excluded_checks=[
            positive_data_acceptance,  # a body of the right shape may still name a topology that is not there
            unsupported_method,  # TRACE and its like: tests/server/test_problems.py
        ],
    )
