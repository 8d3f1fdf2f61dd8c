from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import telemetry
from synth.topology import Topology, catalog
from tests.server.conftest import post_topology


def edges(machine: Topology, *, slow: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    pairs = [(a, b) for a in machine.gpus for b in machine.gpus if a != b]
    return [{"src": a, "dst": b, "bytes": 1e9, "seconds": 0.5 if (a, b) == slow else 0.02} for a, b in pairs]


def test_reports_are_summed_and_a_slow_edge_is_found(client: TestClient, machine: Topology) -> None:
    stored = post_topology(client, machine)
    assert client.get(f"/v1/telemetry/{stored['digest']}").json() == {"edges": [], "findings": []}
    slow = (machine.gpus[2], machine.gpus[5])
    for _ in range(2):
        report = {"topology": stored["fingerprint"], "edges": edges(machine, slow=slow)}
        taken = client.post("/v1/telemetry", json=report)
        assert (taken.status_code, taken.json()) == (202, {"edges": 56})
    found = client.get(f"/v1/telemetry/{stored['fingerprint']}").json()
    assert len(found["edges"]) == 56
    row = next(edge for edge in found["edges"] if (edge["src"], edge["dst"]) == slow)
    assert (row["reports"], row["bytes"], row["seconds"]) == (2, 2e9, 1.0)
    assert (row["bytes_per_s"], row["peers_bytes_per_s"]) == (2e9, 5e10)
    assert row["route_bytes_per_s"] == machine.links[0].bytes_per_s
    (finding,) = found["findings"]
    assert (finding["code"], finding["subject"]) == ("edge-behind", ":".join(slow))
    assert "reaches 2.00 GB/s, edges with an equal route 50.00 GB/s" in finding["message"]


def test_edges_are_compared_with_their_like_only() -> None:
    machine = catalog.build("hgx-h100x2")
    measured = edges(machine)
    for edge in measured:
        if edge["src"].split("/")[0] != edge["dst"].split("/")[0]:
            edge["seconds"] = 1.0  # between nodes everything is slower, and nothing is wrong
    assert telemetry.compare(machine, measured)["findings"] == []
    few = telemetry.compare(machine, measured[:3])
    assert [row["peers_bytes_per_s"] for row in few["edges"]] == [None] * 3


@pytest.mark.parametrize(
    ("edge", "code"),
    [
        ({"src": "n0/gpu0", "dst": "n0/gpu0"}, "demand"),
        ({"src": "n0/gpu0", "dst": "n9/gpu0"}, "demand"),
        ({"src": "n0/gpu0", "dst": "n0/nvswitch"}, "demand"),
        ({"seconds": 0}, "request"),
        ({"bytes": -1}, "request"),
    ],
)
def test_reports_that_make_no_sense(client: TestClient, machine: Topology, edge: dict[str, Any], code: str) -> None:
    stored = post_topology(client, machine)
    report = {"topology": stored["digest"], "edges": [edges(machine)[0] | edge]}
    refused = client.post("/v1/telemetry", json=report)
    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert client.get(f"/v1/telemetry/{stored['digest']}").json()["edges"] == []


def test_groups_are_formed(client: TestClient) -> None:
    machine = catalog.build("hgx-h100x2")
    stored = post_topology(client, machine)
    answer = client.post("/v1/groups", json={"topology": stored["digest"], "ep_size": 8}).json()
    assert sorted(map(sorted, answer["groups"])) == [
        sorted(gpu for gpu in machine.gpus if gpu.startswith(node)) for node in ("n0/", "n1/")
    ]
    refused = client.post("/v1/groups", json={"topology": stored["digest"], "ep_size": 99})
    assert 400 <= refused.status_code < 500
