"""One exchange: retries, deadlines, problems, and servers that behave badly."""

from __future__ import annotations

import gzip
import json
import socket
import time

import pytest

from synth import errors
from synth.client.http import Connection, Deadline, error_of
from synth.errors import InputError, NotFoundError, ServiceError, ServiceUnavailable, SolveError
from tests.client.stub import reply, stub


def connection(url: str, **options: object) -> Connection:
    return Connection(url, sleep=lambda _: None, **options)  # type: ignore[arg-type]


def problem(status: int, code: str, **extra: str) -> bytes:
    body = {"status": status, "code": code, "detail": f"it is {code}"} | extra
    return reply(f"{status} X", json.dumps(body).encode(), "Content-Type: application/problem+json")


def test_what_may_pass_is_tried_again() -> None:
    with stub(b"", problem(503, "storage"), reply("502 Bad Gateway", b"<html>"), reply("200 OK", b'{"a":1}')) as server:
        answer = connection(server.url).ask("GET", "/x", deadline=Deadline.after(20))
    assert answer.json() == {"a": 1}
    assert len(server.requests) == 4


def test_what_will_not_pass_is_not() -> None:
    for status, code, kind in (
        (404, "not-found", NotFoundError),
        (422, "demand", errors.DemandError),
        (422, "infeasible", errors.Infeasible),
        (500, "solve", SolveError),
        (401, "unauthorized", ServiceError),
        (413, "limit-body", errors.LimitError),
        (422, "something-new", InputError),
    ):
        with stub(problem(status, code, pointer="#/x")) as server:
            with pytest.raises(kind, match=f"it is {code}"):
                connection(server.url).ask("POST", "/x", body={}, deadline=Deadline.after(5))
            assert len(server.requests) == 1


def test_the_deadline_holds_whatever_the_server_does() -> None:
    def silent(peer: socket.socket) -> None:
        time.sleep(1.5)

    def drip(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        for _ in range(20):
            peer.sendall(b"x")
            time.sleep(0.1)

    for answer in (silent, drip, b"", reply("503 Busy", b"{}", "Retry-After: 1000")):
        with stub(answer) as server:
            begin = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                Connection(server.url).ask("GET", "/x", deadline=Deadline.after(0.5))
            assert time.monotonic() - begin < 2.5


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServiceUnavailable, match=r"does not answer \(Connection refused\)"):
            Connection(url).ask("GET", "/x", deadline=Deadline.after(0.3))


def test_gzip_is_read_and_cut_answers_are_refused() -> None:
    body = gzip.compress(b'{"a": [1, 2, 3]}' + b" " * 1000)
    with stub(reply("200 OK", body, "Content-Encoding: gzip")) as server:
        assert connection(server.url).ask("GET", "/x", deadline=Deadline.after(5)).json() == {"a": [1, 2, 3]}
    for cut in (
        reply("200 OK", body[:-9], "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"nonsense\r\n\r\n",
    ):
        with stub(cut) as server, pytest.raises(ServiceUnavailable):
            Connection(server.url).ask("GET", "/x", deadline=Deadline.after(0.5))


def test_a_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.documents.MAX_BYTES", 2**20)
    bomb = gzip.compress(b" " * 2**24)
    with (
        stub(reply("200 OK", bomb, "Content-Encoding: gzip")) as server,
        pytest.raises(errors.LimitError, match="larger than 1048576 bytes"),
    ):
        connection(server.url).ask("GET", "/x", deadline=Deadline.after(5))


def test_redirects_are_not_followed_so_the_token_stays_here() -> None:
    with (
        stub(reply("302 Found", b"", "Location: http://127.0.0.1:9/elsewhere")) as server,
        pytest.raises(ServiceError, match="status 302; is it a synth server"),
    ):
        connection(server.url, token="secret").ask("GET", "/x", deadline=Deadline.after(5))
    assert b"Authorization: Bearer secret" in server.requests[0]


def test_another_kind_of_server_is_named_as_such() -> None:
    with stub(reply("200 OK", b"<html>hello")) as server, pytest.raises(ServiceError, match="is it a synth server"):
        connection(server.url).ask("GET", "/x", deadline=Deadline.after(5)).json()


def test_every_class_of_the_tree_comes_back_as_itself() -> None:
    for kind in (errors.DemandError, errors.Infeasible, errors.PlanError, errors.NotFoundError, errors.TopologyError):
        made = error_of(422, {"code": kind.code, "detail": "text", "pointer": "#/a"}, "http://s")
        assert type(made) is kind
        assert (made.message, made.subject) == ("text", "#/a")


def test_a_certificate_that_cannot_be_read() -> None:
    with pytest.raises(InputError, match="SYNTH_CA_FILE: /nowhere cannot be used"):
        Connection("https://127.0.0.1:1", ca_file="/nowhere")
