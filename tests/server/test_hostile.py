"""Input that nobody sends by accident: each gets a 4xx with a stable code, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from synth import topology
from synth.topology import Topology, catalog
from tests.plans import direct_alltoall

JSON = {"Content-Type": "application/json"}
DEVICE = {"id": "n0/gpu0", "kind": "gpu", "node": "n0"}


def document(**changes: Any) -> dict[str, Any]:
    return topology.to_document(catalog.build("hgx-h100x1")) | changes


def post(client: TestClient, body: bytes | str, path: str = "/v1/topologies") -> tuple[int, str, str]:
    response = client.post(path, content=body, headers=JSON)
    assert response.headers["content-type"] == "application/problem+json", response.text[:300]
    problem = response.json()
    assert response.status_code == problem["status"]
    return response.status_code, problem["code"], problem.get("pointer", "")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[" * 10_000_000, (400, "document", "#")),
        (b'{"topology":' * 1_000_000, (400, "document", "#")),
        (b'{"topology":{"a":' + b"[" * 900 + b"]" * 900 + b"}}", (400, "document", "#/format")),
        (b'{"topology": {"format": "synth-topology/1"', (400, "document", "#")),
        (b'{"topology": NaN}', (400, "document", "#")),
        (b'{"topology": {"a": Infinity}}', (400, "document", "#")),
        (b'{"topology": ' + b"9" * 10_000 + b"}", (400, "document", "#")),
        (b"\xff\xfe", (400, "document", "#")),
        (b"", (422, "request", "#")),
        (b"null", (422, "request", "#")),
        (b"[]", (422, "request", "#")),
        (b'"text"', (422, "request", "#")),
        (b'{"topology": {}, "more": 1}', (422, "request", "#/more")),
        (b'{"topology": []}', (422, "request", "#/topology")),
        (b'{"topology": {}}', (400, "document", "#/format")),
        (b'{"name": "\\u0000"}', (422, "topology", "#/nodes")),
        (b'{"name": ""}', (422, "request", "#/name")),
    ],
    ids=range(17),
)
def test_bodies_that_are_no_requests(idle: TestClient, body: bytes, expected: tuple[int, str, str]) -> None:
    assert post(idle, body) == expected
    assert idle.get("/livez").status_code == 200


def links(**changes: Any) -> list[dict[str, Any]]:
    return [{"src": "n0/gpu0", "dst": "n0/nvswitch", "class": "nvlink", "bytes_per_s": 1, "latency_ns": 1} | changes]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"links": links(bytes_per_s=-1)}, (400, "document", "#/links/0/bytes_per_s")),
        ({"links": links(bytes_per_s=0)}, (400, "document", "#/links/0/bytes_per_s")),
        ({"links": links(bytes_per_s=10**400)}, (400, "document", "#/links/0/bytes_per_s")),
        ({"links": links(bytes_per_s=True)}, (400, "document", "#/links/0/bytes_per_s")),
        ({"links": links(latency_ns=-0.1)}, (400, "document", "#/links/0/latency_ns")),
        ({"links": links(**{"class": "string"})}, (400, "document", "#/links/0/class")),
        ({"links": links(dst="n0/gpu0")}, (422, "topology", "n0/gpu0")),
        ({"links": links(dst="n9/gpu0")}, (422, "topology", "n9/gpu0")),
        ({"devices": [DEVICE, DEVICE], "links": []}, (422, "topology", "n0/gpu0")),
        ({"devices": [], "links": []}, (422, "topology", "#/devices")),
        ({"devices": [5]}, (400, "document", "#/devices/0")),
        ({"links": links() * 100_001}, (422, "limit-links", "#/links")),
        ({"devices": [DEVICE] * 20_001}, (422, "limit-devices", "#/devices")),
        ({"format": "synth-topology/2"}, (400, "document", "#/format")),
    ],
    ids=range(14),
)
def test_topologies_that_make_no_sense(
    idle: TestClient, changes: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    assert post(idle, json.dumps({"topology": document(**changes)})) == expected


def test_an_exponent_that_overflows_is_refused(idle: TestClient) -> None:
    text = json.dumps({"topology": document(links=links())}).replace('"bytes_per_s": 1', '"bytes_per_s": 1e999')
    assert post(idle, text) == (400, "document", "#/links/0/bytes_per_s")


def test_a_million_links_are_refused_unread(idle: TestClient) -> None:
    link = json.dumps(links()[0]).encode()
    body = b'{"topology": {"format": "synth-topology/1", "links": [' + b",".join([link] * 1_000_000) + b"]}}"
    assert len(body) > 80_000_000
    assert post(idle, body) == (413, "limit-body", "body")


def test_a_body_without_a_length_is_cut_off(make_client: Callable[..., TestClient]) -> None:
    client = make_client(max_body_bytes=10_000)
    sent = 0

    def parts() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1000
            yield b" " * 1000

    response = client.post("/v1/topologies", content=parts(), headers=JSON)
    assert (response.status_code, response.json()["code"]) == (413, "limit-body")


def test_a_long_chain_does_not_hold_the_server(make_client: Callable[..., TestClient]) -> None:
    """Colour refinement needs as many steps as a chain is long: the check is stopped, the server is not."""
    client = make_client(check_seconds=1.0)
    count = 6000
    devices = [{"id": f"s{n}", "kind": "switch"} for n in range(count)]
    chain = [
        {"src": f"s{a}", "dst": f"s{b}", "class": "pcie", "bytes_per_s": 1, "latency_ns": 0}
        for n in range(count - 1)
        for a, b in ((n, n + 1), (n + 1, n))
    ]
    body = json.dumps({"topology": document(devices=devices, links=chain)})
    assert post(client, body) == (422, "limit-work", "")
    assert client.get("/readyz").status_code == 200


def plan_document(machine: Topology) -> dict[str, Any]:
    return json.loads(direct_alltoall(machine).text)


def test_plans_that_need_endless_work(make_client: Callable[..., TestClient], machine: Topology) -> None:
    client = make_client(check_seconds=20.0, check_memory_bytes=2**30)
    stored = client.post("/v1/topologies", json={"topology": topology.to_document(machine)}).json()
    plan = plan_document(machine)
    plan["transfers"]["round"] = [2**31] * len(plan["transfers"]["round"])
    plan["segments"] = 2**20
    answer = client.post("/v1/verify", json={"plan": plan, "topology": stored["digest"]})
    assert answer.status_code in (200, 422)
    for cost in ("rounds", "timeline"):
        body = {"plan": plan, "topology": stored["digest"], "bytes": 2**40, "cost": cost}
        answer = client.post("/v1/simulate", json=body)
        assert answer.status_code in (200, 422), answer.text
        assert answer.json().get("code", "limit").startswith("limit")
    many = plan_document(machine) | {"ranks": [f"d{n}" for n in range(2000)]}
    answer = client.post("/v1/verify", json={"plan": many})
    assert (answer.status_code, answer.json()["code"]) == (422, "limit-ranks")
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"collective": "alltoallx"}, (422, "request", "#/collective")),
        ({"ranks": ["n0/gpu0", "n0/gpu9"]}, (422, "demand", "#/ranks/1")),
        ({"ranks": ["n0/gpu0", "n0/gpu0"]}, (422, "demand", "#/ranks")),
        ({"ranks": ["n0/gpu0"]}, (422, "request", "#/ranks")),
        ({"ranks": ["x"] * 1025}, (422, "limit-ranks", "#/ranks")),
        ({"bytes": -1}, (422, "request", "#/bytes")),
        ({"bytes": 2**63}, (422, "request", "#/bytes")),
        ({"bytes": "1GB"}, (422, "request", "#/bytes")),
        ({"bytes": None}, (422, "demand", "#/bytes")),
        ({"bytes": True}, (422, "request", "#/bytes")),
        ({"range": {"min": 5, "max": 1}}, (422, "demand", "#/range")),
        ({"time_limit": 601}, (422, "limit-seconds", "#/time_limit")),
        ({"time_limit": 0}, (422, "request", "#/time_limit")),
        ({"time_limit": 1e400}, (422, "request", "#/time_limit")),
        ({"root": 0}, (422, "demand", "root")),
        ({"collective": "broadcast"}, (422, "demand", "root")),
        ({"collective": "broadcast", "root": 8}, (422, "demand", "root")),
        ({"collective": "sendrecv"}, (422, "demand", "pairs")),
        ({"collective": "sendrecv", "pairs": [[0, 0]]}, (422, "demand", "pairs")),
        ({"collective": "sendrecv", "pairs": [[0, 1, 2]]}, (422, "request", "#/pairs/0")),
        ({"demand": {"bytes": [[1, 2], [3, 4]]}}, (422, "demand", "demand")),
        ({"demand": {"bytes": [[1], [3, 4]]}}, (422, "demand", "#/demand/bytes/0")),
        ({"demand": {"bytes": [[0, -4], [3, 4]]}}, (422, "request", "#/demand/bytes/0/1")),
        ({"objective": {"cost": "beauty"}}, (422, "request", "#/objective/cost")),
        ({"objective": {"launch_ns": -1}}, (422, "request", "#/objective/launch_ns")),
        ({"topology": "asym8"}, (422, "request", "#/topology")),
        ({"topology": "0" * 64}, (404, "not-found", "topology")),
        ({"seed": -1}, (422, "request", "#/seed")),
        ({"typo": 1}, (422, "request", "#/typo")),
    ],
    ids=range(29),
)
def test_requests_for_plans_that_make_no_sense(
    idle: TestClient, machine: Topology, changes: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    stored = idle.post("/v1/topologies", json={"topology": topology.to_document(machine)}).json()
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000} | changes
    body = json.dumps(ask).replace("Infinity", "1e400")
    assert post(idle, body, "/v1/plans") == expected
    assert idle.get("/v1/jobs").json() == {"jobs": []}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("collective=alltoall&bytes=1", (422, "request", "topology")),
        ("topology=x&collective=alltoall&bytes=1", (422, "request", "topology")),
        (f"topology={'0' * 64}&collective=alltoall&bytes=1", (404, "not-found", "topology")),
        ("topology=T&collective=nothing&bytes=1", (422, "request", "collective")),
        ("topology=T&collective=alltoall&bytes=1e3", (422, "request", "bytes")),
        ("topology=T&collective=alltoall&bytes=1&ranks=a,b", (422, "demand", "#/ranks/0")),
        ("topology=T&collective=alltoall&bytes=1&ranks=", (422, "demand", "#/ranks/0")),
        ("topology=T&collective=alltoall&bytes=1&wait=nan", (422, "request", "wait")),
        ("topology=T&collective=alltoall&bytes=1&wait=-1", (422, "request", "wait")),
        ("topology=T&collective=alltoall&bytes=1&time_limit=1e9", (422, "limit-seconds", "#/time_limit")),
        ("topology=T&collective=sendrecv&bytes=1&pairs=0:1,x", (422, "demand", "pairs")),
        ("topology=T&collective=broadcast&bytes=1", (422, "demand", "root")),
    ],
    ids=range(12),
)
def test_questions_that_make_no_sense(
    idle: TestClient, machine: Topology, query: str, expected: tuple[int, str, str]
) -> None:
    stored = idle.post("/v1/topologies", json={"topology": topology.to_document(machine)}).json()
    response = idle.get(f"/v1/resolve?{query.replace('=T&', '=' + stored['digest'] + '&')}")
    problem = response.json()
    assert (response.status_code, problem["code"], problem.get("pointer", "")) == expected


def test_paths_with_odd_characters(idle: TestClient) -> None:
    for path in ("/v1/nodes/a%00b", "/v1/nodes/..%2f..%2fetc", "/v1/plans/%ff", "/v1/jobs/'", "/v1/nodes/" + "x" * 300):
        response = idle.get(path)
        assert response.status_code in (404, 422), path
        assert response.headers["content-type"] == "application/problem+json"
