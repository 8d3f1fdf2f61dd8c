from __future__ import annotations

from dataclasses import replace

from fastapi.testclient import TestClient

from synth import documents, topology
from synth.topology import Topology, catalog
from synth.topology.merge import rename_node
from tests.server.conftest import make_plan, post_topology


def test_a_topology_is_stored_once_and_read_by_either_name(client: TestClient, machine: Topology) -> None:
    first = post_topology(client, machine)
    assert first["created"] is True
    assert first["fingerprint"] == machine.fingerprint
    assert first["ranks"] == list(machine.gpus)
    again = post_topology(client, machine)
    assert again == first | {"created": False}
    for name in (first["fingerprint"], first["digest"]):
        response = client.get(f"/v1/topologies/{name}")
        assert response.json() == topology.to_document(machine)
        assert response.headers["etag"] == f'"{first["digest"]}"'
        assert "immutable" in response.headers["cache-control"]
    assert client.get("/v1/topologies").json()["topologies"][0]["name"] == machine.name


def test_equal_machines_of_other_names_share_the_fingerprint_but_keep_their_documents(
    client: TestClient, machine: Topology
) -> None:
    renamed = rename_node(replace(machine, name="other", links=tuple(reversed(machine.links))), "n0", "host7")
    first, second = post_topology(client, machine), post_topology(client, renamed)
    assert first["fingerprint"] == second["fingerprint"]
    assert first["digest"] != second["digest"]
    assert second["created"] is True
    assert client.get(f"/v1/topologies/{second['digest']}").json()["name"] == "other"
    assert client.get(f"/v1/topologies/{second['fingerprint']}").json()["name"] == machine.name


def test_equal_machines_share_plans_without_solving_again(client: TestClient, fake_solver, machine: Topology) -> None:
    renamed = rename_node(replace(machine, links=tuple(reversed(machine.links))), "n0", "host7")
    first, second = post_topology(client, machine), post_topology(client, renamed)
    ask = {"collective": "alltoall", "bytes": 1000}
    one = make_plan(client, topology=first["digest"], **ask)
    two = make_plan(client, topology=second["digest"], **ask)
    assert fake_solver.read_text().count("start") == 1
    assert one != two
    plan = client.get(f"/v1/plans/{two}").json()
    assert set(plan["ranks"]) == set(renamed.gpus)
    check = client.post("/v1/verify", json={"plan": plan, "topology": second["digest"]}).json()
    assert check["valid"], check


def test_nodes_report_and_are_frozen_into_a_cluster(client: TestClient, machine: Topology) -> None:
    assert client.get("/v1/nodes").json() == {"nodes": []}
    empty = client.post("/v1/topologies", json={})
    assert (empty.status_code, empty.json()["code"]) == (422, "topology")
    for name in ("n0", "n1"):
        report = topology.to_document(rename_node(machine, "n0", name))
        put = client.put(f"/v1/nodes/{name}/topology", json=report)
        assert put.json() == {
            "name": name,
            "digest": documents.digest(report),
            "fingerprint": machine.fingerprint,
            "changed": True,
            "findings": 0,
        }
        assert client.put(f"/v1/nodes/{name}/topology", json=report).json()["changed"] is False
    listed = client.get("/v1/nodes").json()["nodes"]
    assert [node["name"] for node in listed] == ["n0", "n1"]
    assert listed[0]["age_seconds"] >= 0
    assert client.get("/v1/nodes/n1").json()["topology"]["links"]
    cluster = client.post("/v1/topologies", json={"name": "both"}).json()
    assert len(cluster["ranks"]) == 16
    one = client.post("/v1/topologies", json={"name": "one", "nodes": ["n1"]}).json()
    assert one["fingerprint"] == machine.fingerprint
    unknown = client.post("/v1/topologies", json={"nodes": ["n1", "n9"]})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")


def test_a_report_describes_its_own_node(client: TestClient, machine: Topology) -> None:
    response = client.put("/v1/nodes/n5/topology", json=topology.to_document(machine))
    assert response.status_code == 422
    assert "a report of n5 describes that node and no other" in response.json()["detail"]
    assert client.get("/v1/nodes/n5").status_code == 404


def test_a_report_changes_and_is_revalidated(client: TestClient, machine: Topology) -> None:
    client.put("/v1/nodes/n0/topology", json=topology.to_document(machine))
    first = client.get("/v1/nodes/n0/topology")
    tag = {"If-None-Match": first.headers["etag"]}
    assert client.get("/v1/nodes/n0/topology", headers=tag).status_code == 304
    slower = replace(machine, links=(replace(machine.links[0], bytes_per_s=1e9), *machine.links[1:]))
    put = client.put("/v1/nodes/n0/topology", json=topology.to_document(slower)).json()
    assert put["changed"] is True
    assert put["fingerprint"] != machine.fingerprint
    assert client.get("/v1/nodes/n0/topology", headers=tag).status_code == 200


def test_every_catalog_machine_is_accepted(client: TestClient) -> None:
    for name in catalog.names():
        machine = catalog.build(name)
        assert post_topology(client, machine)["fingerprint"] == machine.fingerprint
