"""Plan books: one request, a few plans without gaps, and resolve picks by size."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from fastapi.testclient import TestClient

from synth import plan
from synth.client import Client, PlanRequest
from synth.topology import Topology, catalog
from synth.verifier import verify
from tests.server.conftest import Server, post_topology, wait_for_job


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client(solver="solver.portfolio:solve", workers=1)


def ask(stored: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"topology": stored["digest"], "collective": "allgather", "range": {"min": 1024, "max": 2**30}} | changes


def test_a_book_serves_every_size_of_its_range(client: TestClient) -> None:
    machine = catalog.build("hgx-h100x2")
    stored = post_topology(client, machine)
    pending = client.post("/v1/books", json=ask(stored))
    assert pending.status_code == 202
    assert pending.json()["job"]["book"]
    with ThreadPoolExecutor(1) as pool:  # who asks for a size meanwhile waits for the book
        query = {"topology": stored["digest"], "collective": "allgather", "bytes": 5000, "wait": 60}
        waiting = pool.submit(client.get, "/v1/resolve", params=query)
        assert wait_for_job(client, pending.json()["job"]["id"], seconds=60)["state"] == "done"
        assert waiting.result().status_code == 200
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    book = client.post("/v1/books", json=ask(stored))
    assert book.status_code == 201
    pages = book.json()["plans"]
    assert 2 <= len(pages) <= 8
    assert (pages[0]["min_bytes"], pages[-1]["max_bytes"]) == (1024, 2**30)
    for before, after in pairwise(pages):
        assert after["min_bytes"] == before["max_bytes"] + 1
    for page in pages:
        document = client.get(page["url"]).json()
        assert document["bytes"] == {"min": page["min_bytes"], "max": page["max_bytes"]}
        assert not verify(plan.from_document(document), machine)
        for size in (page["min_bytes"], page["max_bytes"]):
            answer = client.get("/v1/resolve", params=query | {"bytes": size}).json()
            assert (answer["digest"], answer["exact"]) == (page["digest"], True)
    assert waiting.result().json()["min_bytes"] <= 5000 <= waiting.result().json()["max_bytes"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"range": {"min": 0, "max": 10}}, 422),
        ({"range": {"min": 11, "max": 10}}, 422),
        ({"bytes": 10}, 422),
        ({"collective": "broadcast", "root": 99}, 422),
        ({"topology": "0" * 64}, 404),
    ],
)
def test_what_is_no_book_is_refused(
    client: TestClient, machine: Topology, changes: dict[str, Any], status: int
) -> None:
    answer = client.post("/v1/books", json=ask(post_topology(client, machine), **changes))
    assert answer.status_code == status
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_a_book_is_cancelled_like_any_job(client: TestClient) -> None:
    stored = post_topology(client, catalog.build("mesh10x10"))
    id = client.post("/v1/books", json=ask(stored, time_limit=300.0)).json()["job"]["id"]
    wait_for_job(client, id, until=("running",))
    client.delete(f"/v1/jobs/{id}")
    assert wait_for_job(client, id)["state"] == "cancelled"


def test_the_client_asks_for_a_book_once(serve: Callable[..., Server], machine: Topology) -> None:
    client = Client(serve().url)
    request = PlanRequest(topology=machine, collective="allreduce", bytes=1 << 20)
    first = client.post_book(request, 1 << 12, 1 << 26, time_limit=20)
    assert client.wait_for_job(first["job"]["id"], seconds=60)["state"] == "done"
    pages = client.post_book(request, 1 << 12, 1 << 26, time_limit=20)["plans"]
    resolved = client.resolve(request)
    assert resolved is not None
    assert resolved.exact
    assert resolved.digest in {page["digest"] for page in pages}
