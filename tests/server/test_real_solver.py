"""The service with the solver it ships with."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.jobs.order import order
from server.jobs.request import SolveRequest
from synth import plan
from synth.simulator import LAUNCH_NS
from synth.topology import catalog
from synth.topology.degrade import degrade
from tests.server.conftest import post_topology, wait_for_job


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


def test_an_exact_schedule_is_proven_and_its_proof_is_in_the_plan(make_client: Callable[..., TestClient]) -> None:
    client = make_client(solver="solver.portfolio:solve", workers=1)
    stored = post_topology(client, catalog.build("ndv2x1"))
    ask = {
        "topology": stored["digest"],
        "collective": "allgather",
        "bytes": 8000,
        "time_limit": 30,
        "exact": {"objective": "rounds"},
    }
    assert wait_for_job(client, client.post("/v1/plans", json=ask).json()["job"]["id"])["state"] == "done"
    document = client.get(client.post("/v1/plans", json=ask).json()["url"]).json()
    assert document["solver"]["strategy"] == "exact"
    assert document["solver"]["exact"]["value"] == document["solver"]["exact"]["bound"] == 2
    clash = client.post("/v1/plans", json=ask | {"strategies": ["ring"]})
    assert clash.status_code == 422
    assert "exact" in clash.json()["detail"]


def test_an_integer_program_is_cancelled_at_once(
    make_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"SYNTH_TEST_MARK={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    client = make_client(solver="solver.portfolio:solve", workers=1)
    stored = post_topology(client, catalog.build("ndv2x1"))
    ask = {
        "topology": stored["digest"],
        "collective": "allgather",
        "bytes": 10**6,
        "time_limit": 120,
        "objective": {"launch_ns": 0},
        "exact": {"rounds": 3, "chunks": 6},
    }
    id = client.post("/v1/plans", json=ask).json()["job"]["id"]
    end = time.monotonic() + 60
    while "exact" not in ((client.get(f"/v1/jobs/{id}").json()["progress"] or {}).get("message") or ""):
        assert time.monotonic() < end
        time.sleep(0.1)
    client.delete(f"/v1/jobs/{id}")
    assert wait_for_job(client, id)["state"] == "cancelled"
    time.sleep(0.5)
    assert not [pid for pid in _processes_with(mark) if pid != os.getpid()]


def _processes_with(variable: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable in (folder / "environ").read_text(errors="replace"):
                found.append(int(folder.name))
    return found


def test_a_named_strategy_is_tried_alone(make_client: Callable[..., TestClient]) -> None:
    client = make_client(solver="solver.portfolio:solve", workers=1)
    stored = post_topology(client, catalog.build("asym8"))
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 10**6, "strategies": ["direct"]}
    job = wait_for_job(client, client.post("/v1/plans", json=ask).json()["job"]["id"])
    assert client.get(f"/v1/plans/{job['plan']}").json()["solver"]["strategy"] == "direct"
    unknown = client.post("/v1/plans", json=ask | {"strategies": ["magic"]})
    assert unknown.status_code == 422
    assert "magic" in unknown.json()["detail"]


def test_a_degraded_machine_is_planned_from_the_plan_of_the_whole_one(make_client: Callable[..., TestClient]) -> None:
    client = make_client(solver="solver.portfolio:solve", workers=1)
    whole = catalog.build("ndv2x1")
    post_topology(client, catalog.build("asym8"))
    before = post_topology(client, whole)
    query = {"collective": "allgather", "bytes": 10**9, "wait": 60}
    first = client.get("/v1/resolve", params=query | {"topology": before["digest"]}).json()
    after = post_topology(client, degrade(whole, {("n0/gpu0", "n0/gpu3"): 0.5}))
    context = client.app.state.context  # type: ignore[attr-defined]
    request = SolveRequest.from_document(
        {
            "topology": after["digest"],
            "fingerprint": after["fingerprint"],
            "places": list(range(8)),
            "collective": "allgather",
            "ranks": list(whole.gpus),
            "bytes": 10**9,
            "min_bytes": 0,
            "max_bytes": 2**60,
            "pairs": [],
            "demand": None,
        }
    )
    with context.database.read() as connection:
        task = order(connection, request, solver="solver.portfolio:solve")
        far = order(connection, replace(request, bytes=1000), solver="solver.portfolio:solve")
    assert plan.from_document(json.loads(task["earlier"])).digest == first["digest"]
    assert far["earlier"] is None
    answer = client.get("/v1/resolve", params=query | {"topology": after["digest"]})
    assert answer.status_code == 200, answer.text
    assert 0 <= answer.json()["gap"] <= 0.2
