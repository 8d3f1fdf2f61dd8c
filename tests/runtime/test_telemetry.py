"""Reports to the server at close: right when wanted, absent when not, never in the job's way."""

import json
import threading
import time

import numpy as np
import pytest

from runtime.attach import attach
from synth.topology import catalog
from tests.client.stub import reply, stub

MACHINE = catalog.build("hgx-h100x1")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")
    monkeypatch.setenv("SYNTH_CACHE", "off")
    monkeypatch.setenv("SYNTH_TOPOLOGY", "hgx-h100x1")
    monkeypatch.setenv("SYNTH_TIMEOUT", "1")


def exchange(communicator):
    ep = attach(communicator=communicator)
    assert ep.all_reduce(np.ones(1000, dtype=np.float32))[0] == ep.size
    began = time.monotonic()
    ep.close()
    return time.monotonic() - began, {peer: edge.bytes for peer, edge in ep.stats().edges.items()}


def reports(requests):
    return [json.loads(one.partition(b"\r\n\r\n")[2]) for one in requests if one.startswith(b"POST /v1/telemetry")]


def wait_for_reports():
    for thread in threading.enumerate():
        if thread.name == "synth-telemetry":
            thread.join(10)


def test_edges_are_reported_once_when_wanted(in_threads, monkeypatch):
    with stub(reply("404 Not Found", b'{"code": "unknown", "detail": "no"}')) as server:
        monkeypatch.setenv("SYNTH_SERVER", server.url)
        in_threads(2, exchange)
        assert reports(server.requests) == []
        monkeypatch.setenv("SYNTH_TELEMETRY", "on")
        results = in_threads(2, exchange)
        wait_for_reports()
        found = reports(server.requests)
    assert len(found) == 2
    for report in found:
        assert report["topology"] == MACHINE.fingerprint
        (edge,) = report["edges"]
        rank = MACHINE.gpus.index(edge["src"])
        assert edge["dst"] == MACHINE.gpus[1 - rank]
        assert edge["bytes"] == results[rank][1][1 - rank] == 4000
        assert edge["seconds"] > 0


def test_a_server_that_hangs_or_is_down_delays_nobody(in_threads, monkeypatch):
    monkeypatch.setenv("SYNTH_TELEMETRY", "on")
    with stub(lambda connection: time.sleep(1.0)) as server:
        for url in (server.url, "http://127.0.0.1:9"):
            monkeypatch.setenv("SYNTH_SERVER", url)
            assert all(seconds < 1.0 for seconds, _ in in_threads(2, exchange))
        wait_for_reports()
