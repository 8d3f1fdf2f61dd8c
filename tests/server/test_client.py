"""The client against a real server process: what a training job does at its start."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from synth import topology
from synth.client import Cache, Client, Environment, PlanRequest, find_plan
from synth.errors import InputError, NotFoundError
from synth.plan import load_slice
from synth.topology import Topology
from synth.verifier import verify
from tests.server.conftest import Server


def test_a_job_gets_its_plan_and_its_slices(serve: Callable[..., Server], machine: Topology, tmp_path: Path) -> None:
    server = serve()
    environment = Environment(server=server.url, cache=tmp_path / "cache", wait=20)
    request = PlanRequest(topology=machine, collective="alltoall", bytes=1 << 20)
    found = find_plan(request, environment)
    assert found.source == "server", found.reason
    assert found.plan is not None
    assert not verify(found.plan, machine)
    client = Client.from_environment(environment)
    for rank in (0, 7):
        document = client.plan_slice(found.plan.digest, rank)
        part, number, whole = load_slice(document)
        assert (number, whole) == (rank, found.plan.digest)
        assert len(part.transfers) == 14
    with pytest.raises(NotFoundError, match="rank 8: the plan has ranks 0 to 7"):
        client.plan_slice(found.plan.digest, 8)

    server.kill()
    again = find_plan(request, replace(environment, timeout=1, wait=0))
    assert again.source == "cache"
    assert again.plan is not None
    assert again.plan.digest == found.plan.digest
    assert "does not answer" in again.reason
    assert client.plan_slice(found.plan.digest, 0)["rank"] == 0

    other = replace(request, bytes=1 << 21)
    nothing = find_plan(other, replace(environment, timeout=1, wait=0))
    assert nothing.plan is None
    assert nothing.source == "none"


def test_the_other_calls(serve: Callable[..., Server], machine: Topology, tmp_path: Path) -> None:
    client = Client(serve().url)
    report = topology.to_document(machine)
    assert client.put_node_topology("n0", machine)["changed"] is True
    assert client.put_node_topology("n0", report)["changed"] is False
    frozen = client.post_topology(name="mine")
    assert frozen["fingerprint"] == machine.fingerprint
    assert client.topology(frozen["digest"]).name == "mine"
    request = PlanRequest(topology=machine, collective="alltoall", bytes=1000)
    posted = client.post_plan(request)
    job = client.wait_for_job(posted["job"]["id"], seconds=20)
    assert job["state"] == "done"
    assert client.post_plan(request)["digest"] == job["plan"]
    resolved = client.resolve(request)
    assert resolved is not None
    assert resolved.digest == job["plan"]
    assert client.resolve(request, etag=resolved.etag) is None
    assert client.cancel(posted["job"]["id"])["state"] == "done"
    assert client.post_telemetry(machine.fingerprint, [("n0/gpu0", "n0/gpu1", 1e9, 0.01)]) == {"edges": 1}
    with pytest.raises(InputError, match="names a device twice"):
        client.post_plan(PlanRequest(topology=machine, collective="alltoall", bytes=1, ranks=("n0/gpu0", "n0/gpu0")))


def test_an_uneven_demand(serve: Callable[..., Server], machine: Topology) -> None:
    matrix = np.arange(64.0).reshape(8, 8) * 1000
    request = PlanRequest(topology=machine, collective="alltoall", bytes=1, demand=matrix)
    found = find_plan(request, Environment(server=serve().url, wait=20))
    assert found.source == "server", found.reason
    assert found.plan is not None
    assert found.plan.demand is not None
    assert (found.plan.demand == matrix).all()


def _start_together(barrier: Barrier) -> None:
    barrier.wait(60)


def _one_rank(url: str, cache: str) -> tuple[str, str]:
    machine = topology.catalog.build("hgx-h100x1")  # type: ignore[attr-defined]
    request = PlanRequest(topology=machine, collective="alltoall", bytes=4096)
    found = find_plan(request, Environment(server=url, cache=Path(cache), wait=20))
    assert found.plan is not None, found.reason
    return found.source, found.plan.digest


def test_one_rank_per_node_asks(
    serve: Callable[..., Server], tmp_path: Path, fake_solver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SOLVER_SECONDS", "1.5")
    server = serve("--verbose")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(6, spawn, _start_together, (spawn.Barrier(6),)) as ranks:
        found = list(ranks.map(_one_rank, [server.url] * 6, [str(tmp_path / "cache")] * 6))
    assert {source for source, _ in found} == {"server"}
    assert len({digest for _, digest in found}) == 1
    assert fake_solver.read_text().count("start") == 1
    server.kill()
    asked = [line for line in server.log.read_text().splitlines() if "GET /v1/resolve" in line]
    assert len([line for line in asked if "404" not in line]) == 1, asked
    assert server.log.read_text().count("GET /v1/plans/") == 1


def test_a_corrupt_cache_entry_is_fetched_again(
    serve: Callable[..., Server], machine: Topology, tmp_path: Path
) -> None:
    environment = Environment(server=serve().url, cache=tmp_path / "cache", wait=20)
    request = PlanRequest(topology=machine, collective="alltoall", bytes=4096)
    first = find_plan(request, environment)
    assert first.plan is not None
    digest = first.plan.digest
    client = Client.from_environment(environment)
    client.plan_slice(digest, 1)
    files = [p for p in (tmp_path / "cache").rglob("*.json") if "answers" not in p.parts]
    assert len(files) == 2
    for path in files:
        path.write_text(path.read_text().replace("alltoall", "alltoalL"))
    assert Cache(environment.cache).document(digest) is None
    assert find_plan(request, environment).plan is not None
    assert client.plan_slice(digest, 1)["collective"] == "alltoall"
    assert Cache(environment.cache).document(digest) == first.plan.text


def test_a_cache_that_cannot_be_written_is_no_error(
    serve: Callable[..., Server], machine: Topology, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    request = PlanRequest(topology=machine, collective="alltoall", bytes=4096)
    found = find_plan(request, Environment(server=serve().url, cache=blocked / "cache", wait=20))
    assert found.source == "server", found.reason
    assert os.path.isfile(blocked)


def test_answers_of_the_cache_are_json(serve: Callable[..., Server], machine: Topology, tmp_path: Path) -> None:
    environment = Environment(server=serve().url, cache=tmp_path / "cache", wait=20)
    request = PlanRequest(topology=machine, collective="alltoall", bytes=4096)
    assert find_plan(request, environment).source == "server"
    path = tmp_path / "cache" / "answers" / f"{request.key}.json"
    assert json.loads(path.read_text())["plan"]
    path.write_text("[1, 2")
    assert Cache(environment.cache).answer(request.key) is None
    assert not path.exists()
    assert find_plan(request, environment).source == "server"
