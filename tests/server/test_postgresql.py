"""The same service on a real PostgreSQL, started for these tests; skipped where its programs are not installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from fastapi.testclient import TestClient
from sqlalchemy import text

from server.store import Database, jobs, tables
from synth.errors import InputError
from synth.topology import Topology
from tests.server import fake_solver as fake
from tests.server.conftest import Server, make_plan, post_topology, wait_for_job
from tests.server.test_jobs import add

pytest.importorskip("psycopg", reason="psycopg is not installed")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS, reason="no PostgreSQL server programs in /usr/lib/postgresql"),
]


def as_postgres(*words: str) -> list[str]:
    """A PostgreSQL server refuses to run as root; then it runs as the user its package made."""
    return ["runuser", "-u", "postgres", "--", *words] if os.geteuid() == 0 else list(words)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a fresh PostgreSQL on loopback, without a database name."""
    folder = Path(tempfile.mkdtemp(prefix="synth-pg-"))
    folder.chmod(0o777)
    data, bin = folder / "data", PROGRAMS[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    subprocess.run(
        as_postgres(str(bin / "initdb"), "-D", str(data), "-A", "trust", "-U", "synth", "-N"),
        check=True,
        capture_output=True,
    )
    options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
    start = [str(bin / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(as_postgres(*start), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"postgresql+psycopg://synth@127.0.0.1:{port}"
    finally:
        stop = [str(bin / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"]
        subprocess.run(as_postgres(*stop), check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(cluster: str, request: pytest.FixtureRequest) -> str:
    """An empty database of its own for each test."""
    import psycopg

    name = f"t{abs(hash(request.node.name)) % 10**12}"
    with psycopg.connect(cluster.replace("+psycopg", "") + "/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{cluster}/{name}"


def test_servers_that_start_together_migrate_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: Database(url), range(4)))
    with opened[0].read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    for database in opened:
        database.close()


def test_each_job_is_claimed_once(url: str) -> None:
    database = Database(url)
    ids = {add(database, float(number), key=f"k{number}").id for number in range(40)}

    def claim(owner: int) -> list[str]:
        mine = []
        while True:
            with database.write() as connection:
                job = jobs.claim(connection, owner=str(owner), lease_seconds=60, now=time.time())
            if job is None:
                return mine
            mine.append(job.id)

    with ThreadPoolExecutor(8) as pool:
        claimed = [id for mine in pool.map(claim, range(8)) for id in mine]
    assert sorted(claimed) == sorted(ids)
    database.close()


def test_equal_requests_of_many_servers_share_one_job(url: str) -> None:
    opened = [Database(url) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: add(opened[n % 4], float(n), key="same").id, range(32)))
    assert len(set(found)) == 1
    for database in opened:
        database.close()


def test_the_whole_way(make_client: Callable[..., TestClient], url: str, machine: Topology) -> None:
    client = make_client(db=url)
    stored = post_topology(client, machine)
    assert post_topology(client, machine)["created"] is False
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=1000)
    assert client.get(f"/v1/plans/{digest}/ranks/7").json()["rank"] == 7
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 10**6, "wait": 20}
    assert client.get("/v1/resolve", params=query).status_code == 200
    assert len(client.get("/v1/plans").json()["plans"]) == 2
    assert "synth_plans 2.0" in client.get("/metrics").text


def test_ranks_at_different_servers_meet(make_client: Callable[..., TestClient], url: str) -> None:
    clients = [make_client(db=url, workers=0) for _ in range(2)]

    def arrive(rank: int) -> list[str]:
        own = clients[rank % 2]
        time.sleep(0.2 * rank)
        assert own.put(f"/v1/rendezvous/job/id:{rank}", json={"value": "AAA="}).status_code == 200
        asked = {"name": "id", "ranks": 4, "wait": 20}
        values: list[str] = own.get("/v1/rendezvous/job", params=asked).json()["values"]
        return values

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(arrive, range(4))) == [["AAA="] * 4] * 4
    refused = clients[1].put("/v1/rendezvous/job/id:0", json={"value": "AAE="})
    assert refused.json()["code"] == "rendezvous-taken"


def test_killed_in_the_middle_of_a_solve_another_server_finishes_it(
    serve: Callable[..., Server],
    make_client: Callable[..., TestClient],
    url: str,
    machine: Topology,
    fake_solver: Path,
) -> None:
    server = serve("--db", url, "--lease-seconds", "1")
    client = make_client(db=url, workers=0)
    stored = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000, "seed": fake.SLOW, "time_limit": 2}
    id = client.post("/v1/plans", json=ask).json()["job"]["id"]
    wait_for_job(client, id, until=("running",))
    server.kill(signal.SIGKILL)
    serve("--db", url, "--lease-seconds", "1")
    job = wait_for_job(client, id)
    assert (job["state"], job["attempt"]) == ("done", 2)
    assert fake_solver.read_text().count("end") == 1


def test_a_server_that_is_away_is_one_sentence_then_a_problem(url: str, make_client: Callable[..., TestClient]) -> None:
    with pytest.raises(InputError, match=r"cannot be opened \(") as caught:
        Database("postgresql+psycopg://synth:secret@127.0.0.1:1/none")
    assert "secret" not in caught.value.message
    client = make_client(db=url, workers=0)
    database: Database = client.app.state.context.database  # type: ignore[attr-defined]
    with database.write() as connection:
        connection.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
    assert client.get("/readyz").status_code == 200  # connections that died are replaced
