"""The one shape of every error, its status, and its page in the documentation."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server import errors as service
from server import problems
from synth import errors as tree
from synth.errors import InputError, InvalidUsage, SynthError

DOCS = Path(__file__).parents[2] / "docs" / "errors.md"


def every(kind: type[SynthError] = SynthError) -> list[type[SynthError]]:
    found = [kind, *(below for child in kind.__subclasses__() for below in every(child))]
    return [k for k in dict.fromkeys(found) if k.__module__ in (tree.__name__, service.__name__)]


def exit_of(kind: type[SynthError]) -> int:
    return 2 if issubclass(kind, InputError | InvalidUsage) else 1


def test_codes_are_unique_and_documented_with_their_status_and_exit() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9-]+) \| ([0-9-]+) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    documented = {code: (status, leave) for code, status, leave, _ in rows}
    assert len(documented) == len(rows)
    expected = {kind.code: (str(problems.status_of(kind)), str(exit_of(kind))) for kind in every()}
    assert len(expected) == len(every()), "two classes share a code"
    framework = {"path": ("404", "-"), "method": ("405", "-"), "internal": ("500", "70")}
    assert documented == expected | framework
    text = {code: meaning for code, _, _, meaning in rows}
    for kind in every():
        assert problems.title_of(kind).split(";")[0].rstrip(".") in text[kind.code], kind


def test_every_class_has_its_place_in_the_drawing_of_its_module() -> None:
    for kind in every():
        module = service if kind.__module__ == service.__name__ else tree
        assert kind.__name__ in (module.__doc__ or ""), kind


@pytest.fixture(scope="module")
def failing(idle: TestClient) -> TestClient:
    kinds = {kind.code: kind for kind in every()}

    @idle.app.get("/raise/{code}")  # type: ignore[attr-defined]
    def fail(code: str) -> None:
        raise kinds[code]("what is wrong; what would be right", subject="topology#/links/3")

    return idle


@pytest.mark.parametrize("kind", every())
def test_each_error_becomes_a_problem(failing: TestClient, kind: type[SynthError]) -> None:
    response = failing.get(f"/raise/{kind.code}", headers={"X-Request-Id": "my-id.1"})
    assert response.status_code == problems.status_of(kind)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json() == {
        "type": f"urn:synth:problem:{kind.code}",
        "title": problems.title_of(kind),
        "status": response.status_code,
        "detail": "what is wrong; what would be right",
        "code": kind.code,
        "pointer": "#/links/3",
        "request_id": "my-id.1",
    }
    if response.status_code == 401:
        assert response.headers["www-authenticate"] == 'Bearer realm="synth"'


def test_what_the_framework_refuses_has_the_same_shape(client: TestClient) -> None:
    for method, path, status, code in (
        ("GET", "/v1/nothing", 404, "path"),
        ("PATCH", "/v1/jobs", 405, "method"),
        ("GET", "/v1/jobs?limit=0", 422, "request"),
        ("GET", "/docs", 404, "path"),
    ):
        response = client.request(method, path)
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["request_id"] == response.headers["x-request-id"]
    assert client.patch("/v1/plans").headers["allow"] == "GET, POST"
    assert client.patch(f"/v1/jobs/{'0' * 16}").headers["allow"] == "DELETE, GET"


def test_an_error_nobody_expected_tells_nothing_but_its_id(
    make_client: Callable[..., TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client(workers=0)

    @client.app.get("/raise")  # type: ignore[attr-defined]
    def fail() -> None:
        raise ZeroDivisionError("secret detail")

    with caplog.at_level(logging.ERROR):
        response = client.get("/raise")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert "secret" not in response.text
    assert response.json()["request_id"] in caplog.text
    assert "secret detail" in caplog.text


def test_request_ids_are_kept_only_when_harmless(client: TestClient) -> None:
    assert client.get("/livez", headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "abc"
    for bad in ("x" * 65, "a b", "a\tb", "<script>"):
        given = client.get("/livez", headers={"X-Request-Id": bad}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", given)


def test_bodies_must_be_declared_as_json(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = client.post("/v1/plans", content=b"{}", headers={"Content-Type": kind})
        assert (response.status_code, response.json()["code"]) == (415, "media-type")
    response = client.post("/v1/plans", content=b"{}", headers={"Content-Type": "application/json; charset=utf-8"})
    assert response.status_code == 422
