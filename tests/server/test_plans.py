from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.planning import bucket
from synth import documents, plan
from synth.plan import load_slice
from synth.topology import Topology
from tests.server import fake_solver as fake
from tests.server.conftest import make_plan, post_topology, wait_for_job


@pytest.fixture
def stored(client: TestClient, machine: Topology) -> dict[str, Any]:
    return post_topology(client, machine)


def test_a_plan_is_made_once_and_then_known(client: TestClient, stored: dict[str, Any]) -> None:
    ask = {"topology": stored["fingerprint"], "collective": "alltoall", "bytes": 1_000_000}
    pending = client.post("/v1/plans", json=ask)
    assert pending.status_code == 202
    assert pending.json()["state"] == "pending"
    id = pending.json()["job"]["id"]
    assert pending.headers["location"] == f"/v1/jobs/{id}"
    job = wait_for_job(client, id)
    assert (job["state"], job["attempt"], job["error"]) == ("done", 1, None)
    known = client.post("/v1/plans", json=ask)
    assert known.status_code == 201
    assert known.json()["digest"] == job["plan"]
    assert known.json()["min_bytes"] == 500_000
    assert known.headers["location"] == known.json()["url"]
    assert client.get("/v1/plans").json()["plans"][0]["digest"] == job["plan"]


def test_a_stored_plan_is_valid_and_immutable(client: TestClient, stored: dict[str, Any], machine: Topology) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    response = client.get(f"/v1/plans/{digest}")
    assert documents.digest(response.json()) == digest
    assert response.headers["etag"] == f'"{digest}"'
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    plain = client.get(f"/v1/plans/{digest}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert documents.digest_text(plain.text) == digest
    for tag in (f'"{digest}"', f'W/"{digest}"', f'"x", "{digest}"', "*"):
        unchanged = client.get(f"/v1/plans/{digest}", headers={"If-None-Match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert client.get(f"/v1/plans/{digest}", headers={"If-None-Match": '"x"'}).status_code == 200


def test_slices_are_made_once_and_served_to_all_at_once(
    client: TestClient, stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    context = client.app.state.context  # type: ignore[attr-defined]
    cuts: list[str] = []
    perform = context.perform
    monkeypatch.setattr(context, "perform", lambda name, task: cuts.append(name) or perform(name, task))
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda r: client.get(f"/v1/plans/{digest}/ranks/{r % 8}"), range(64)))
    assert cuts == ["cut"]
    whole = plan.from_document(client.get(f"/v1/plans/{digest}").json())
    for number, reply in enumerate(replies):
        document = reply.json()
        assert load_slice(document)[1:] == (number % 8, digest)
        assert document == plan.slice_plan(whole, number % 8)
        assert reply.headers["etag"] == f'"{document["digest"]}"'
    tag = {"If-None-Match": replies[0].headers["etag"]}
    assert client.get(f"/v1/plans/{digest}/ranks/0", headers=tag).status_code == 304


def test_unknown_plans_and_ranks(client: TestClient, stored: dict[str, Any]) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    for path in (f"/v1/plans/{'0' * 64}", f"/v1/plans/{'0' * 64}/ranks/0", f"/v1/plans/{digest}/ranks/8"):
        response = client.get(path)
        assert (response.status_code, response.json()["code"]) == (404, "not-found")
    assert client.get("/v1/plans/short").status_code == 422


def test_equal_requests_share_one_job(
    client: TestClient, stored: dict[str, Any], fake_solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SOLVER_SECONDS", "1")
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    together = threading.Barrier(12)

    def post(_: int) -> str:
        together.wait()
        return client.post("/v1/plans", json=ask).json()["job"]["id"]

    with ThreadPoolExecutor(12) as pool:
        ids = set(pool.map(post, range(12)))
    assert len(ids) == 1
    job = wait_for_job(client, ids.pop())
    assert job["state"] == "done"
    assert fake_solver.read_text().count("start") == 1
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


def test_resolve_waits_and_then_answers_304(client: TestClient, stored: dict[str, Any]) -> None:
    query = {"topology": stored["fingerprint"], "collective": "alltoall", "bytes": 1_000_000}
    pending = client.get("/v1/resolve", params=query)
    assert pending.status_code == 202
    assert pending.headers["retry-after"] == "1"
    ready = client.get("/v1/resolve", params=query | {"wait": 20})
    assert ready.status_code == 200
    assert ready.json()["exact"] is True
    assert (ready.json()["min_bytes"], ready.json()["max_bytes"]) == bucket(1_000_000)[1:]
    again = client.get("/v1/resolve", params=query, headers={"If-None-Match": ready.headers["etag"]})
    assert again.status_code == 304
    near = client.get("/v1/resolve", params=query | {"bytes": 700_000})
    assert near.json()["digest"] == ready.json()["digest"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


def test_resolve_prefers_a_plan_made_for_the_size(client: TestClient, stored: dict[str, Any]) -> None:
    for size in (1_000, 1_000_000):
        make_plan(client, topology=stored["digest"], collective="alltoall", bytes=size)
    query = {"topology": stored["digest"], "collective": "alltoall", "start": False}
    for size, made_for, exact in (
        (900, 1_000, True),
        (1_500_000, 1_000_000, True),
        (10_000, 1_000, False),
        (10**12, 1_000_000, False),
    ):
        answer = client.get("/v1/resolve", params=query | {"bytes": size}).json()
        assert (answer["bytes"], answer["exact"]) == (made_for, exact)


def test_resolve_joins_the_job_that_will_answer_it(client: TestClient, stored: dict[str, Any]) -> None:
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1_000_000, "time_limit": 1, "seed": 1}
    id = client.post("/v1/plans", json=ask).json()["job"]["id"]
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1_200_000}
    assert client.get("/v1/resolve", params=query).json()["job"]["id"] == id
    assert client.get("/v1/resolve", params=query | {"wait": 20}).json()["bytes"] == 1_000_000


def test_resolve_says_when_it_may_not_start(client: TestClient, stored: dict[str, Any]) -> None:
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    for extra in ({"start": False}, {"demand": "0" * 64}):
        response = client.get("/v1/resolve", params=query | extra)
        assert (response.status_code, response.json()["code"]) == (404, "no-plan")
    assert client.get("/v1/jobs").json() == {"jobs": []}


def test_resolve_of_a_request_that_cannot_succeed_fails_at_once(
    make_client: Callable[..., TestClient], machine: Topology, fake_solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client()
    stored = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1024, "seed": fake.INFEASIBLE}
    id = client.post("/v1/plans", json=ask | {"range": {"min": 0, "max": 1024}}).json()["job"]["id"]
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000, "wait": 20}
    response = client.get("/v1/resolve", params=query)
    assert (response.status_code, response.json()["code"]) == (422, "infeasible")
    assert wait_for_job(client, id)["error"] == {
        "code": "infeasible",
        "message": "no schedule exists: rank 0 is an island",
        "subject": "rank 0",
    }
    again = client.post("/v1/plans", json=ask | {"range": {"min": 0, "max": 1024}})
    assert (again.status_code, again.json()["code"]) == (422, "infeasible")
    assert fake_solver.read_text().count("start") == 1


def test_a_demand_is_resolved_by_its_digest(client: TestClient, stored: dict[str, Any]) -> None:
    matrix = {"bytes": [[float(a * b) for a in range(8)] for b in range(8)]}
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", demand=matrix)
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 5, "demand": documents.digest(matrix)}
    answer = client.get("/v1/resolve", params=query).json()
    assert answer["digest"] == digest
    assert answer["bytes"] == 7 * 28


def test_sizes_that_resolve_rounds_to() -> None:
    assert bucket(0) == (1024, 0, 1024)
    assert bucket(1024) == (1024, 0, 1024)
    assert bucket(1025) == (2048, 1025, 2048)
    assert bucket(2**62) == (2**62, 2**61 + 1, 2**62)
    for size in (1025, 2048, 2049, 10**9, 2**40 + 1):
        made_for, least, most = bucket(size)
        assert least <= size <= most == made_for


def test_checks(client: TestClient, stored: dict[str, Any], machine: Topology) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    document = client.get(f"/v1/plans/{digest}").json()
    good = client.post("/v1/verify", json={"plan": document, "topology": stored["fingerprint"]}).json()
    assert good == {"valid": True, "violations": [], "bound_checked": False, "digest": digest}
    for column in document["transfers"].values():
        column.pop()
    bad = client.post("/v1/verify", json={"plan": document}).json()
    assert bad["valid"] is False
    assert {violation["rule"] for violation in bad["violations"]} == {"not-delivered"}
    refused = client.post("/v1/simulate", json={"plan": document, "bytes": 10})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-plan")


def test_a_price(client: TestClient, stored: dict[str, Any]) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    document = client.get(f"/v1/plans/{digest}").json()
    answer = client.post("/v1/simulate", json={"plan": document, "bytes": 8_000_000, "launch_ns": 9000.0}).json()
    assert answer["rounds"] == 1
    assert answer["seconds"] == pytest.approx(answer["busiest_links"][0]["seconds"] + 9e-6, rel=0.1)
    timeline = client.post("/v1/simulate", json={"plan": document, "bytes": 8_000_000, "cost": "timeline"})
    assert timeline.json()["seconds"] > 0


def test_a_plan_in_another_format(client: TestClient, stored: dict[str, Any]) -> None:
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    response = client.get(f"/v1/plans/{digest}/export/msccl-xml")
    assert response.headers["content-type"] == "application/xml"
    assert response.text.startswith("<algo ")
    assert client.get(f"/v1/plans/{digest}/export/word").status_code == 422
    assert client.get(f"/v1/plans/{'0' * 64}/export/msccl-xml").status_code == 404


def test_experts_are_placed(client: TestClient, stored: dict[str, Any]) -> None:
    loads = [[float(1 + (expert * 7) % 13) for expert in range(16)] for _ in range(2)]
    ask = {"topology": stored["digest"], "loads": loads, "replicas": 24}
    answer = client.post("/v1/placements", json=ask).json()
    assert [len(layer) for layer in answer["phy2log"]] == [24, 24]
    assert all(set(layer) == set(range(16)) for layer in answer["phy2log"])
    for got, bound in zip(answer["max_over_mean"], answer["bound_max_over_mean"], strict=True):
        assert got >= bound - 1e-9
    again = client.post("/v1/placements", json=ask | {"previous": answer["phy2log"]})
    assert again.status_code == 200, again.text
    for change in ({"replicas": 5}, {"loads": [[1.0], [1.0, 2.0]]}, {"loads": [[-1.0]]}, {"ep_size": 99}):
        refused = client.post("/v1/placements", json=ask | change)
        assert 400 <= refused.status_code < 500, refused.text
