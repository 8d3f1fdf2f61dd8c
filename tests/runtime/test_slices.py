"""Large groups run on slices: fetched one per rank, held together by sums, refused together when one is wrong."""

from __future__ import annotations

import re
import threading
import urllib.request
from dataclasses import replace

import numpy as np
import pytest

from runtime import plans, slices
from runtime.attach import attach
from runtime.communicators.local import LocalWorld
from runtime.direct import direct_plan
from runtime.schedules import Operation
from synth.collective import Collective, Demand
from synth.errors import ServiceUnavailable, UnmatchedGroup
from synth.plan.lowering import lower
from synth.topology import catalog
from tests.client.stub import reply, stub
from tests.server.conftest import Server, serve

__all__ = ["serve"]  # a fixture

portfolio = pytest.importorskip("solver.portfolio")


@pytest.fixture
def fake_solver():
    """``serve`` runs the real one here."""


@pytest.fixture(autouse=True)
def small_groups_are_large(monkeypatch):
    monkeypatch.setattr(slices, "WHOLE_RANKS", 2)
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_RANKS"):
        monkeypatch.delenv(name, raising=False)


def solved(machine="asym8", collective="alltoall", **options):
    topology = catalog.build(machine)
    rooted = Collective(collective).rooted
    demand = Demand(
        collective=Collective(collective), ranks=len(topology.gpus), bytes=1 << 20, root=3 if rooted else None
    )
    return portfolio.solve(topology, demand, time_limit=2.0, **options).plan


def rows(plan, parts=None):
    return [slices.sums_of(part).row() for part in parts or [slices.cut(plan, rank) for rank in range(len(plan.ranks))]]


@pytest.mark.parametrize("collective", ["alltoall", "allreduce", "broadcast", "allgather"])
def test_slices_add_up_to_the_plan_and_lower_alike(collective):
    plan = solved(collective=collective)
    assert slices.mismatch(slices.sums_of(plan), rows(plan)) is None
    counts = {"alltoall": np.full((8, 8), 1001), "allgather": np.full(8, 1001)}.get(collective, np.asarray(8008))
    for rank in range(8):
        part = slices.cut(plan, rank)
        assert part.digest == plan.digest
        one, other = lower(plan, counts, rank, align=4), lower(part, counts, rank, align=4)
        assert [(r.sends, r.receives) for r in one.rounds] == [(r.sends, r.receives) for r in other.rounds]


def test_symmetric_plans_too():
    plan = solved("hgx-h100x16")
    assert plan.symmetry is not None
    assert slices.mismatch(slices.sums_of(plan), rows(plan)) is None


def spoiled(part, how):
    transfers, columns = part.transfers, {}
    for name in transfers.__slots__:
        columns[name] = getattr(transfers, name).copy()
    match how:
        case "lost":
            columns = {name: column[1:] for name, column in columns.items()}
        case "later":
            columns["round"][-1] += 1
        case "swapped":  # two pieces of one message change places
            columns["chunk"][[0, 1]] = columns["chunk"][[1, 0]]
        case "added-up":
            columns["reduce"][0] = 1
    return part.with_(transfers=replace(transfers, **columns))


@pytest.mark.parametrize("how", ["lost", "later", "swapped", "added-up"])
def test_a_slice_that_was_changed_is_noticed(how):
    plan = solved()
    parts = [slices.cut(plan, rank) for rank in range(8)]
    parts[5] = spoiled(parts[5], how)
    assert slices.mismatch(slices.sums_of(plan), rows(plan, parts)) == -1


def test_a_slice_of_another_plan_is_noticed():
    plan, other = solved(), solved(collective="allgather")
    parts = [slices.cut(plan, rank) for rank in range(8)]
    parts[2] = slices.cut(other, 2)
    assert slices.mismatch(slices.sums_of(plan), rows(plan, parts)) == 2
    document = slices.slice_plan(plan, 3) | {"rank": 4}
    del document["digest"]
    document["digest"] = slices.documents.digest(document)
    with pytest.raises(slices.InvalidPlan, match="holds transfers of other ranks"):
        slices.slice_of(document)


def asked(server: Server) -> dict[str, int]:
    """How often the server answered 200, by route."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^synth_http_requests_total\{method="GET",route="([^"]+)",status="200"\} ([0-9.]+)', text, re.M)
    return {route: int(float(count)) for route, count in found}


def exchange(communicator):
    ep = attach(communicator=communicator, topology="asym8", bytes=1 << 16)
    matrix = (np.add.outer(np.arange(8), np.arange(8)) % 3) * 40
    send = np.repeat(np.arange(8) + 10 * ep.rank, matrix[ep.rank])
    got, _ = ep.all_to_all(send, matrix[ep.rank])
    right = np.concatenate([np.full(matrix[peer, ep.rank], ep.rank + 10 * peer) for peer in range(8)])
    assert np.array_equal(got, right)
    reason = ep.stats().reasons["alltoall"]
    names = {name for _, name in ep.stats().operations}
    ep.close()
    return reason, names


def unavailable(*_):
    raise ServiceUnavailable("no answer in time")


def test_one_rank_fetches_the_plan_and_the_others_their_slices(in_threads, serve, monkeypatch, tmp_path):
    server = serve()
    for name, value in (("SERVER", server.url), ("CACHE", "off"), ("TRIAL", "off"), ("QUIET", "1")):
        monkeypatch.setenv(f"SYNTH_{name}", value)
    monkeypatch.setattr(slices, "keep_whole", lambda *_: None)
    found = in_threads(8, exchange)
    (names,) = {tuple(names) for _, names in found}
    assert names[0].startswith("plan ")
    assert found[0][0].startswith(f"{names[0]} from server")
    assert found[5][0] == f"{names[0]}, slice of rank 5"
    counts = asked(server)
    assert counts["/v1/plans/{digest}"] == 1
    assert counts["/v1/plans/{digest}/ranks/{rank}"] == 7
    assert counts["/v1/resolve"] == 1
    with monkeypatch.context() as slow:  # a server that does not get its slices ready in time has the whole plan
        slow.setattr(slices.Client, "plan_slice", unavailable)
        assert all(ran == set(names) for _, ran in in_threads(8, exchange))
        assert asked(server)["/v1/plans/{digest}"] == 1 + 8
    # with a cache, the next start works without the server: rank 0 has the plan, the others cut or kept their slices
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    assert all(ran == set(names) for _, ran in in_threads(8, exchange))
    server.kill()
    monkeypatch.setenv("SYNTH_TIMEOUT", "1")
    for reason, ran in in_threads(8, exchange):
        assert ran == set(names), reason
    for path in (tmp_path / "cache" / "slices").rglob("*.json"):
        path.unlink()
    for reason, ran in in_threads(8, exchange):
        assert ran == set(names), reason


@pytest.mark.parametrize("how", ["gone", "changed", "other"])
def test_one_bad_slice_and_nobody_uses_the_plan(in_threads, monkeypatch, how):
    plan = solved()
    monkeypatch.setattr(plans, "find", lambda *_: plans.Found(plan, "server", "plan from server"))

    def fetch(environment, digest, rank, ranks):
        part = slices.cut(plan, rank)
        if rank == 3:
            if how == "gone":
                return None, "the server went away"
            part = spoiled(part, "later") if how == "changed" else part.with_(min_bytes=1)
        return part, ""

    monkeypatch.setattr(slices, "fetch", fetch)
    source = plans.Source(plans.Environment(), catalog.build("asym8"))
    operation = Operation(Collective.ALLTOALL)
    settled = in_threads(8, lambda communicator: plans.settle(communicator, source, operation), world=LocalWorld(8))
    assert all(found is None for found, _ in settled)
    said = {
        "gone": "rank 0 has plan .*, rank 3 has none",
        "changed": "the slices of the ranks together are not plan",
        "other": "rank 3 has a slice not plan",
    }[how]
    assert re.search(said, settled[0][1]), settled[0][1]
    monkeypatch.setenv(plans.FALLBACK, "error")
    raised = in_threads(8, lambda communicator: plans.settle(communicator, source, operation), world=LocalWorld(8))
    assert [type(error) for error in raised] == [UnmatchedGroup] * 8


@pytest.mark.parametrize("what", ["no JSON", "another plan's", "more ranks", "nothing"])
def test_a_server_whose_slices_are_nonsense_stops_nobody(in_threads, monkeypatch, what):
    plan, other = solved(), solved("hgx-h100x2", collective="allgather")
    monkeypatch.setattr(plans, "find", lambda *_: plans.Found(plan, "server", "plan from server"))
    more = slices.slice_plan(other, 3) | {"plan": plan.digest}
    del more["digest"]
    body = {
        "no JSON": b"<html>",
        "another plan's": slices.documents.canonical(slices.slice_plan(other, 3)).encode(),
        "more ranks": slices.documents.canonical(more | {"digest": slices.documents.digest(more)}).encode(),
        "nothing": b"",
    }[what]
    with stub(reply("200 OK", body)) as server:
        source = plans.Source(plans.Environment(server=server.url, timeout=2.0), catalog.build("asym8"))
        operation = Operation(Collective.ALLTOALL)
        settled = in_threads(8, lambda communicator: plans.settle(communicator, source, operation), world=LocalWorld(8))
    assert [found for found, _ in settled] == [None] * 8
    assert "rank 0 has plan" in settled[0][1]


def test_what_everybody_needs_the_whole_plan_for(monkeypatch):
    assert not slices.may_slice(direct_plan(Collective.ALLTOALL, 2))
    assert slices.may_slice(direct_plan(Collective.ALLTOALL, 4))
    sparse = direct_plan(Collective.ALLTOALL, 4)
    kept = sparse.chunks.origin != 2
    chunks = slices.plans.Chunks(sparse.chunks.origin[kept], sparse.chunks.target[kept], sparse.chunks.share[kept])
    assert not slices.may_slice(sparse.with_(chunks=chunks))
    plan = direct_plan(Collective.ALLTOALL, 4)
    edges = np.zeros((4, 4), dtype=bool)
    edges[0, 1] = True
    assert slices.edges_of(slices.cut(plan, 0).with_(edges=edges)) == {(0, 1)}
    assert len(slices.edges_of(plan)) == 12


def test_a_nodes_cache_gets_the_whole_plan_in_the_background(serve, monkeypatch, tmp_path):
    server = serve()
    machine = catalog.build("asym8")
    request = slices.PlanRequest(topology=machine, collective="alltoall", bytes=1 << 16)
    digest = slices.Client(server.url).resolve(request, wait=30).digest
    monkeypatch.setattr(slices, "SPREAD_SECONDS", 0.0)
    environment = slices.Environment(server=server.url, cache=tmp_path / "cache")
    slices.keep_whole(environment, request, digest)
    for thread in threading.enumerate():
        if thread.name == "synth-keep":
            thread.join(20)
    server.kill()
    found = plans.find_plan(request, replace(environment, timeout=0.5))
    assert (found.source, found.plan.digest) == ("cache", digest)
    slices.keep_whole(replace(environment, server="http://127.0.0.1:9", timeout=0.2), request, "0" * 64)  # says nothing
