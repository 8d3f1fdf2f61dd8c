"""Ranks find each other at the server: values that wait, expire, and belong to one token's job."""

from __future__ import annotations

import base64
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from runtime.place import Place
from runtime.rendezvous import ServerStore, meet, open_store
from server import auth
from synth.errors import InputError, InvalidUsage, RemoteError, ServiceUnavailable
from tests.server.conftest import Server


def put(client: TestClient, key: str, value: bytes, job: str = "job-1", **headers: Any) -> Any:
    body = {"value": base64.b64encode(value).decode()}
    return client.put(f"/v1/rendezvous/{job}/{key}", json=body, **headers)


def test_a_value_is_there_for_the_job_and_no_other(client: TestClient) -> None:
    assert client.get("/v1/rendezvous/job-1/0:id:0").status_code == 404
    assert put(client, "0:id:0", b"\0" * 128).json() == {"seconds": 600.0}
    assert put(client, "0:id:0", b"\0" * 128).status_code == 200  # a try again
    taken = put(client, "0:id:0", b"other")
    assert (taken.status_code, taken.json()["code"]) == (409, "rendezvous-taken")
    assert base64.b64decode(client.get("/v1/rendezvous/job-1/0:id:0").json()["value"]) == b"\0" * 128
    assert client.get("/v1/rendezvous/job-2/0:id:0").status_code == 404


def test_the_values_of_all_ranks(client: TestClient) -> None:
    for rank in (0, 2):
        put(client, f"x:{rank}", bytes([rank]))
    asked = {"name": "x", "ranks": 3, "wait": 0.2}
    began = time.monotonic()
    assert client.get("/v1/rendezvous/job-1", params=asked).json() == {"values": ["AA==", None, "Ag=="]}
    assert 0.15 < time.monotonic() - began < 5
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.get, "/v1/rendezvous/job-1", params=asked | {"wait": 20}) for _ in range(3)]
        time.sleep(0.2)
        put(client, "x:1", b"")
        assert [one.result().json()["values"] for one in waiting] == [["AA==", "", "Ag=="]] * 3
    assert client.app.state.context.lookout._looking == {}  # type: ignore[attr-defined]


def test_values_expire_and_are_few(make_client: Callable[..., TestClient]) -> None:
    client = make_client(rendezvous_seconds=1.0, max_rendezvous=2)
    put(client, "a", b"1")
    put(client, "b", b"1")
    full = put(client, "c", b"1")
    assert (full.status_code, full.json()["code"]) == (429, "limit-rendezvous")
    time.sleep(1.1)
    assert client.get("/v1/rendezvous/job-1/a").status_code == 404
    assert put(client, "a", b"2").status_code == 200


@pytest.mark.parametrize(
    ("path", "value"),
    [("job/" + "k" * 200, "AA=="), ("a job/k", "AA=="), ("job/k", "AA="), ("job/k", "A" * 1372), ("job/k", "\u00e9")],
)
def test_what_is_no_value(idle: TestClient, path: str, value: str) -> None:
    refused = idle.put(f"/v1/rendezvous/{path}", json={"value": value})
    assert (refused.status_code, refused.json()["code"]) == (422, "request")


def test_a_tokens_jobs_are_its_own(make_client: Callable[..., TestClient], tmp_path: Any) -> None:
    names = {"one": ["plan:write"], "two": ["plan:write"], "reader": ["plan:read"]}
    made = {name: auth.new_token(name, scopes) for name, scopes in names.items()}
    (tmp_path / "tokens").write_text("\n".join(line for _, line in made.values()))
    client = make_client(tokens=tmp_path / "tokens")
    as_ = {name: {"headers": {"Authorization": f"Bearer {token}"}} for name, (token, _) in made.items()}
    assert put(client, "k", b"1").status_code == 401
    assert put(client, "k", b"1", **as_["reader"]).status_code == 403
    assert client.get("/v1/rendezvous/job-1/k", **as_["reader"]).status_code == 403
    assert put(client, "k", b"1", **as_["one"]).status_code == 200
    assert client.get("/v1/rendezvous/job-1/k", **as_["two"]).status_code == 404
    assert put(client, "k", b"2", **as_["two"]).status_code == 200
    assert client.get("/v1/rendezvous/job-1/k", **as_["one"]).json()["value"] == "MQ=="


def arrive(url: str, rank: int, ranks: int, delay: float) -> list[bytes]:
    """One rank, in a process of its own: it meets the others with the value that NCCL's id would be."""
    time.sleep(delay)
    place = Place(rank, ranks, rank, "arguments")
    given = {"SYNTH_SERVER": url, "SYNTH_RENDEZVOUS": "server:run-7.0", "SYNTH_CACHE": "off"}
    store = open_store(place, 20.0, given).under("ep/0")
    return meet(store, "0/id", place, 20.0, b"id of rank %d" % rank)


def test_processes_meet_at_a_real_server(serve: Callable[..., Server]) -> None:
    server = serve("--workers", "0")
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        met = list(pool.map(arrive, [server.url] * 3, range(3), [3] * 3, [0.0, 0.4, 0.8], timeout=60))
    assert met == [[b"id of rank 0", b"id of rank 1", b"id of rank 2"]] * 3
    place = Place(0, 2, 0, "arguments")
    given = {"SYNTH_SERVER": server.url, "SYNTH_RENDEZVOUS": "server:run-8"}
    store = open_store(place, 1.0, given)
    assert isinstance(store, ServerStore)
    began = time.monotonic()
    with pytest.raises(RemoteError, match="rank 1 did not arrive within 1 s"):
        meet(store, "0/id", place, 1.0)
    assert time.monotonic() - began < 5
    assert store.get("nothing", 0.0) is None
    with pytest.raises(InputError, match="give each start of a job its own name"):
        store.put("0/id/0", b"another")
    server.kill(15)
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        store.get("nothing", 0.5)


def test_a_rendezvous_needs_a_server_and_a_name() -> None:
    place = Place(0, 2, 0, "arguments")
    with pytest.raises(InvalidUsage, match="SYNTH_SERVER is not set"):
        open_store(place, 1.0, {"SYNTH_RENDEZVOUS": "server:x"})
    with pytest.raises(InvalidUsage, match="names no job"):
        open_store(place, 1.0, {"SYNTH_RENDEZVOUS": "server:", "SYNTH_SERVER": "http://127.0.0.1:9"})
