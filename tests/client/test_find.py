"""Which plan is used, and the one line that says so. With a server: tests/server/test_client.py."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from synth import plan
from synth.client import Cache, Environment, PlanRequest, find_plan
from synth.client.cache import Answer
from synth.errors import DemandError
from synth.topology import Topology, catalog
from tests.plans import direct_alltoall


@pytest.fixture
def machine() -> Topology:
    return catalog.build("hgx-h100x1")


@pytest.fixture
def request_(machine: Topology) -> PlanRequest:
    return PlanRequest(topology=machine, collective="alltoall", bytes=4096)


def seed_cache(folder: Path, request: PlanRequest) -> plan.Plan:
    made = direct_alltoall(request.topology)
    cache = Cache(folder)
    cache.put_document(made.digest, made.text)
    cache.put_answer(request.key, Answer(plan=made.digest, etag="e", server="http://gone", asked_at=time.time()))
    return made


def test_nothing_is_set(request_: PlanRequest, tmp_path: Path) -> None:
    seed_cache(tmp_path, request_)
    found = find_plan(request_, Environment(cache=tmp_path))
    assert found == (None, "none", "no plan: neither SYNTH_PLAN_FILE nor SYNTH_SERVER is set")


def test_a_cache_that_is_named_is_enough(request_: PlanRequest, tmp_path: Path) -> None:
    made = seed_cache(tmp_path, request_)
    found = find_plan(request_, Environment(cache=tmp_path, cache_wanted=True))
    assert (found.source, found.reason) == (
        "cache",
        f"plan {made.digest[:12]} from cache: SYNTH_SERVER is not set",
    )
    other = find_plan(replace(request_, bytes=1), Environment(cache=tmp_path, cache_wanted=True))
    assert (other.plan, other.source) == (None, "none")


def test_a_plan_file_wins_over_a_server(request_: PlanRequest, tmp_path: Path) -> None:
    made = direct_alltoall(request_.topology)
    path = tmp_path / "plan.json"
    plan.save(made, path)
    environment = Environment(plan_files=("/nowhere", str(path)), server="http://127.0.0.1:9", timeout=0.2)
    found = find_plan(request_, environment)
    assert found.plan is not None
    assert (found.source, found.plan.digest) == ("file", made.digest)
    assert found.reason == f"plan {made.digest[:12]} from file {path}"


def test_a_plan_file_that_does_not_fit_is_named(request_: PlanRequest, tmp_path: Path) -> None:
    made = direct_alltoall(request_.topology)
    path = tmp_path / "plan.json"
    plan.save(made.with_(min_bytes=10_000), path)
    found = find_plan(request_, Environment(plan_files=(str(path),)))
    assert found.plan is None
    assert "no plan file fits" in found.reason
    assert "chosen for 10000 to" in found.reason
    path.write_text("{")
    found = find_plan(request_, Environment(plan_files=(str(path),), server="http://127.0.0.1:9", timeout=0.2))
    assert (found.plan, found.source) == (None, "none")
    assert "is not JSON" in found.reason
    assert "does not answer" in found.reason
    assert "\n" not in found.reason


def test_misfits(request_: PlanRequest, machine: Topology) -> None:
    made = direct_alltoall(machine)
    assert request_.misfit(made) is None
    for change, why in (
        ({"topology": "0" * 64}, "for topology 000000000000"),
        ({"ranks": tuple(reversed(machine.gpus))}, "on other devices"),
        ({"max_bytes": 100}, "chosen for 0 to 100 bytes"),
    ):
        assert why in (request_.misfit(made.with_(**change)) or "")
    assert "it is for alltoall" in (replace(request_, collective="allgather").misfit(made) or "")


def test_a_request_is_checked_when_it_is_made(machine: Topology) -> None:
    with pytest.raises(DemandError, match="is no GPU of topology"):
        PlanRequest(topology=machine, collective="alltoall", bytes=1, ranks=("n0/gpu0", "n9/gpu0"))
    with pytest.raises(DemandError, match="needs a root"):
        PlanRequest(topology=machine, collective="broadcast", bytes=1)


def test_the_client_needs_the_standard_library_and_numpy_only() -> None:
    code = (
        "import sys, synth.client;"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('fastapi','pydantic','sqlalchemy','httpx','httpx2','requests','pulp','cupy','torch','uvicorn','starlette')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
