"""A server in this process (``client``) and, for what needs one, a real process on a real port (``serve``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from synth import topology
from synth.topology import Topology, catalog

HERE = Path(__file__).parent


@pytest.fixture
def fake_solver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the stand-in importable by child processes; returns the file it logs starts and ends to."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_SOLVER_LOG", str(tmp_path / "solver.log"))
    monkeypatch.setenv("SYNTH_SERVE_SOLVER", "fake_solver:solve")
    return tmp_path / "solver.log"


@pytest.fixture
def make_client(fake_solver: Path, tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    open_clients: list[TestClient] = []

    def make(**settings: Any) -> TestClient:
        values = {"db": str(tmp_path / "synth.db"), "workers": 2, "solver": "fake_solver:solve"} | settings
        client = TestClient(create_app(Settings(**values)), base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.__enter__()
        open_clients.append(client)
        return client

    yield make
    for client in open_clients:
        client.__exit__(None, None, None)


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for a whole module, which solves nothing: for requests that are refused."""
    settings = Settings(db=str(tmp_path_factory.mktemp("idle") / "synth.db"), workers=0)
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


@pytest.fixture(scope="session")
def machine() -> Topology:
    """Eight GPUs behind one switch: every pair has a route."""
    return catalog.build("hgx-h100x1")


def post_topology(client: Any, machine: Topology) -> dict[str, Any]:
    response = client.post("/v1/topologies", json={"topology": topology.to_document(machine)})
    assert response.status_code in (200, 201), response.text
    return response.json()


def wait_for_job(client: Any, id: str, *, seconds: float = 20.0, until: tuple[str, ...] = ()) -> dict[str, Any]:
    """The job once it ended, or reached one of the states."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = client.get(f"/v1/jobs/{id}").json()
        if job["state"] in (until or ("done", "failed", "cancelled")):
            return job
        time.sleep(0.05)
    raise AssertionError(f"job {id} is still {job['state']} after {seconds} s")


def make_plan(client: Any, **request: Any) -> str:
    """Ask for a plan and wait for it; returns its digest."""
    response = client.post("/v1/plans", json=request)
    if response.status_code == 202:
        return wait_for_job(client, response.json()["job"]["id"])["plan"]
    assert response.status_code == 201, response.text
    return response.json()["digest"]


@dataclass
class Server:
    """A real ``synth serve`` process."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def kill(self, kind: int = signal.SIGKILL) -> int:
        self.process.send_signal(kind)
        return self.process.wait(30)


def start_server(folder: Path, *flags: str, db: Path | None = None) -> Server:
    """Start ``synth serve`` on a free port and wait until it says that it is ready."""
    log = folder / f"serve-{len(list(folder.glob('serve-*.log')))}.log"
    words = ["serve", "--port", "0", "--db", str(db or folder / "synth.db"), "--workers", "1", *flags]
    with open(log, "w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "synth.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ.copy(),
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("synth serve: listening on "):
        stop_server(Server(process, "", log))
        raise AssertionError(line + log.read_text())
    return Server(process, line.split()[-1], log)


def stop_server(server: Server) -> None:
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait()
    assert server.process.stdout is not None
    server.process.stdout.close()


@pytest.fixture
def serve(fake_solver: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start ``synth serve`` with some flags; everything started is stopped afterwards."""
    started: list[Server] = []

    def start(*flags: str, db: Path | None = None) -> Server:
        started.append(start_server(tmp_path, *flags, db=db))
        return started[-1]

    yield start
    for server in started:
        stop_server(server)
