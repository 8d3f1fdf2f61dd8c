from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from probe import agent
from synth import documents
from synth.client import Client
from synth.errors import CaptureError, ServiceUnavailable
from synth.topology import Finding, Severity, Topology, catalog


class FakeClient(Client):
    """Takes reports, or fails for a while."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__("http://127.0.0.1:9")
        self.failures = failures
        self.reports: list[Topology] = []

    def put_node_topology(self, name, report):
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("the server does not answer")
        self.reports.append(report)
        return {}


def machine(rate: float = 1.0) -> Topology:
    one = catalog.build("asym8")
    return replace(one, links=tuple(replace(link, bytes_per_s=link.bytes_per_s * rate) for link in one.links))


def run(readings: list[Topology | CaptureError], client: FakeClient) -> list[str]:
    """Watch until all readings were taken; what was told."""
    stop, told, left = threading.Event(), list[str](), list(readings)

    def read() -> Topology:
        item = left.pop(0)
        if not left:
            stop.set()
        if isinstance(item, CaptureError):
            raise item
        return item

    agent.watch(read, client, "n0", interval=0.001, stop=stop, tell=told.append)
    return told


def test_only_changes_are_reported():
    client = FakeClient()
    run([machine(), machine(), machine(0.5), machine(0.5)], client)
    assert client.reports == [machine(), machine(0.5)]


def test_texts_and_remarks_are_no_change_but_faults_are():
    remark = Finding(code="pcie-degraded", severity=Severity.INFO, subject="n0/gpu0", message="2.5 of 32 GT/s")
    fault = Finding(code="nvlink-down", severity=Severity.ERROR, subject="n0/gpu0", message="link 3")
    client = FakeClient()
    one = machine()
    run([one, replace(one, findings=(remark,)), replace(one, findings=(fault,))], client)
    assert len(client.reports) == 2


def test_a_server_that_is_away_is_told_once_and_tried_again():
    client = FakeClient(failures=3)
    told = run([machine()] * 5, client)
    assert len(client.reports) == 1
    assert sum("does not answer" in text for text in told) == 1
    assert "working again" in told


def test_a_driver_that_fails_for_a_while_is_survived():
    client = FakeClient()
    run([CaptureError("nvml: fails"), machine()], client)
    assert len(client.reports) == 1


class Server(BaseHTTPRequestHandler):
    """Keeps the bodies of PUT requests."""

    bodies: list[bytes] = []  # noqa: RUF012 - one list for the one server of the test
    arrived = threading.Event()

    def do_PUT(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")
        self.arrived.set()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    listening = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_watch_reports_over_http_and_ends_clean_on_sigterm(server: str, tmp_path: Path):
    matrix = tmp_path / "topo.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    command = [sys.executable, "-m", "synth", "probe", str(matrix), "--watch", "--server", server, "--interval", "60"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert Server.arrived.wait(30)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "reported n0" in errors
    assert documents.parse(Server.bodies[0])["format"] == "synth-topology/1"
