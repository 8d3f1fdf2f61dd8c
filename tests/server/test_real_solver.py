"""The service with the solver it ships with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fastapi.testclient import TestClient

from synth.simulator import LAUNCH_NS
from synth.topology import catalog
from tests.server.conftest import post_topology


def test_plans_come_with_a_checked_bound_and_a_small_gap(make_client: Callable[..., TestClient]) -> None:
    client = make_client(solver="solver.portfolio:solve", workers=1)
    stored = post_topology(client, catalog.build("asym8"))
    for collective, most in (("alltoall", 0.05), ("allreduce", 0.35)):
        query = {"topology": stored["digest"], "collective": collective, "bytes": 10**9, "wait": 60}
        answer = client.get("/v1/resolve", params=query)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert 0 <= found["gap"] <= most
        document = client.get(found["url"]).json()
        check = client.post("/v1/verify", json={"plan": document, "topology": stored["digest"]}).json()
        assert check == {"valid": True, "violations": [], "bound_checked": True, "digest": found["digest"]}
        asked = {"plan": document, "bytes": found["bytes"], "launch_ns": LAUNCH_NS}
        price = client.post("/v1/simulate", json=asked).json()
        assert price["seconds"] == found["predicted_seconds"]
        assert client.get(f"/plans/{found['digest']}").status_code == 200


def test_an_unreachable_gpu_is_one_sentence(make_client: Callable[..., TestClient]) -> None:
    client = make_client(solver="solver.portfolio:solve", workers=1)
    machine = catalog.build("asym8")
    lonely = machine.gpus[3]
    cut = replace(machine, links=tuple(link for link in machine.links if lonely not in (link.src, link.dst)))
    stored = post_topology(client, cut)
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 10**6, "wait": 60}
    for _ in range(2):
        answer = client.get("/v1/resolve", params=query)
        assert answer.status_code == 422, answer.text
        assert lonely in answer.json()["detail"]
        assert "cannot reach" in answer.json()["detail"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
