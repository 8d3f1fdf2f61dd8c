"""Jobs as their rows say, with a solver that is slow, crashes, is deaf or wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.jobs import runner
from server.store import Database, jobs
from server.store.jobs import State
from synth.topology import Topology
from tests.server import fake_solver as fake
from tests.server.conftest import post_topology, wait_for_job


def start(client: TestClient, machine: Topology, **extra: Any) -> str:
    stored = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000} | extra
    response = client.post("/v1/plans", json=ask)
    assert response.status_code == 202, response.text
    return response.json()["job"]["id"]


def pids(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("start")]


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_progress_is_shown(client: TestClient, machine: Topology) -> None:
    id = start(client, machine, seed=fake.SLOW, time_limit=5)
    end = time.monotonic() + 10
    while (job := client.get(f"/v1/jobs/{id}").json())["progress"] is None and time.monotonic() < end:
        time.sleep(0.1)
    assert job["state"] == "running"
    assert job["progress"]["bound_seconds"] == 1.0
    assert job["progress"]["incumbent_seconds"] == 1.0 + job["progress"]["gap"]
    client.delete(f"/v1/jobs/{id}")


def test_cancel_stops_the_process(client: TestClient, machine: Topology, fake_solver: Path) -> None:
    id = start(client, machine, seed=fake.SLOW, time_limit=600)
    wait_for_job(client, id, until=("running",))
    while not fake_solver.exists():
        time.sleep(0.05)
    (pid,) = pids(fake_solver)
    assert alive(pid)
    asked = client.delete(f"/v1/jobs/{id}")
    assert asked.status_code == 202
    assert asked.json()["cancel_requested"] is True
    job = wait_for_job(client, id, seconds=5)
    assert job["state"] == "cancelled"
    assert not alive(pid)
    again = client.delete(f"/v1/jobs/{id}")
    assert again.json()["state"] == "cancelled"


def test_a_queued_job_is_cancelled_at_once(make_client: Callable[..., TestClient], machine: Topology) -> None:
    client = make_client(workers=0)
    id = start(client, machine)
    assert client.get(f"/v1/jobs/{id}").json()["state"] == "queued"
    assert client.delete(f"/v1/jobs/{id}").json()["state"] == "cancelled"
    assert start(client, machine) != id
    assert client.get("/v1/jobs", params={"state": "cancelled"}).json()["jobs"][0]["id"] == id


def test_a_solver_that_crashes_is_tried_again_then_fails(
    client: TestClient, machine: Topology, fake_solver: Path
) -> None:
    id = start(client, machine, seed=fake.CRASH)
    job = wait_for_job(client, id)
    assert (job["state"], job["attempt"], job["error"]["code"]) == ("failed", 3, "solver-crashed")
    assert "was killed by signal 9, 3 times" in job["error"]["message"]
    assert len(pids(fake_solver)) == 3


def test_one_crash_does_not_touch_other_jobs(client: TestClient, machine: Topology) -> None:
    slow = start(client, machine, seed=fake.SLOW, time_limit=1)
    crash = start(client, machine, seed=fake.CRASH)
    assert wait_for_job(client, crash)["state"] == "failed"
    assert wait_for_job(client, slow)["state"] == "done"


def test_a_deaf_solver_is_stopped(
    client: TestClient, machine: Topology, fake_solver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.5)
    id = start(client, machine, seed=fake.DEAF, time_limit=0.5)
    job = wait_for_job(client, id)
    assert (job["state"], job["error"]["code"]) == ("failed", "solver-timeout")
    deadline = time.monotonic() + 10  # the job's end is written down before the child's
    while alive(pids(fake_solver)[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pids(fake_solver)[0])


def test_a_plan_that_breaks_a_rule_is_never_stored(client: TestClient, machine: Topology) -> None:
    id = start(client, machine, seed=fake.INVALID)
    job = wait_for_job(client, id)
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid-plan")
    assert "the shares of block 0 -> 1" in job["error"]["message"]
    assert client.get("/v1/plans").json() == {"plans": []}


def test_a_solver_that_does_not_exist_fails_the_job(make_client: Callable[..., TestClient], machine: Topology) -> None:
    client = make_client(solver="no_such_module:solve")
    job = wait_for_job(client, start(client, machine))
    assert (job["state"], job["error"]["code"]) == ("failed", "solver-crashed")


def test_a_full_queue_refuses(make_client: Callable[..., TestClient], machine: Topology) -> None:
    client = make_client(workers=0, max_queue=2)
    for seed in (10, 11):
        start(client, machine, seed=seed)
    stored = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    refused = client.post("/v1/plans", json=ask | {"seed": 12})
    assert (refused.status_code, refused.json()["code"]) == (429, "limit-queue")
    assert refused.headers["retry-after"] == "5"
    assert client.post("/v1/plans", json=ask | {"seed": 11}).status_code == 202  # joins
    few = make_client(workers=0, max_jobs_per_token=2)
    refused = few.post("/v1/plans", json=ask | {"seed": 12})
    assert (refused.status_code, refused.json()["code"]) == (429, "limit-jobs")


def add(database: Database, now: float, key: str = "k") -> jobs.Job:
    with database.write() as connection:
        return jobs.add(
            connection, key=key, subject="s", min_bytes=0, max_bytes=9, request={"bytes": 1}, caller="me", now=now
        )


def test_a_lease_is_taken_over_and_the_old_owner_can_do_no_more(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "j.db"))
    add(database, 0.0)
    with database.write() as connection:
        first = jobs.claim(connection, owner="a", lease_seconds=10, now=0.0)
        assert first is not None
        assert jobs.claim(connection, owner="b", lease_seconds=10, now=9.0) is None
        assert jobs.heartbeat(connection, first, progress={"gap": 1}, lease_seconds=10, now=9.0)
        assert jobs.claim(connection, owner="b", lease_seconds=10, now=18.0) is None
        second = jobs.claim(connection, owner="b", lease_seconds=10, now=19.5)
        assert second is not None
        assert (second.id, second.attempt, second.progress) == (first.id, 2, None)
        assert not jobs.heartbeat(connection, first, progress=None, lease_seconds=10, now=19.6)
        assert not jobs.finish(connection, first, State.FAILED, now=19.7)
        assert not jobs.release(connection, first, refund=True)
        assert jobs.finish(connection, second, State.CANCELLED, now=19.8)
        assert not jobs.finish(connection, second, State.FAILED, now=19.9)
        assert jobs.latest(connection, "k") == jobs.get(connection, first.id)
    database.close()


def test_jobs_are_taken_in_order_and_given_back(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "j.db"))
    ids = [add(database, float(number), key=f"k{number}").id for number in range(3)]
    with database.write() as connection:
        first = jobs.claim(connection, owner="a", lease_seconds=10, now=5.0)
        assert first is not None
        assert first.id == ids[0]
        assert jobs.release(connection, first, refund=True)
        again = jobs.claim(connection, owner="b", lease_seconds=10, now=6.0)
        assert again is not None
        assert (again.id, again.attempt) == (ids[0], 1)
        assert jobs.counts(connection)[State.QUEUED] == 2
        assert jobs.oldest_queued(connection) == 1.0
        assert jobs.unfinished(connection, "me") == 3
        assert jobs.active_about(connection, "s", 10) is None
        found = jobs.active_about(connection, "s", 9)
        assert found is not None
        assert found.id == ids[0]
    database.close()


def test_old_jobs_are_forgotten_and_their_plans_stay(
    make_client: Callable[..., TestClient], machine: Topology, fake_solver: Path
) -> None:
    client = make_client()
    plan = wait_for_job(client, start(client, machine))["plan"]
    waiting = make_client(workers=0)
    kept = start(waiting, machine, seed=77)
    make_client(workers=1, keep_days=0, solver="no_such:solver")
    end = time.monotonic() + 10
    while len(left := client.get("/v1/jobs").json()["jobs"]) > 1 and time.monotonic() < end:
        time.sleep(0.05)
    assert [job["id"] for job in left] == [kept]
    assert client.get(f"/v1/plans/{plan}").status_code == 200
