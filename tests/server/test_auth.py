from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server import auth
from server.auth import Scope, Tokens
from synth import topology
from synth.cli.main import main
from synth.errors import InputError
from synth.topology import Topology


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """A token of each scope, in a file."""
    made = {scope.value: auth.new_token(scope.name.lower(), [scope.value]) for scope in Scope}
    (tmp_path / "tokens").write_text("# who may what\n\n" + "".join(line + "\n" for _, line in made.values()))
    return {name: secret for name, (secret, _) in made.items()}


@pytest.fixture
def guarded(make_client: Callable[..., TestClient], tokens: dict[str, str], tmp_path: Path) -> TestClient:
    return make_client(tokens=tmp_path / "tokens")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_each_scope_opens_its_own_doors(guarded: TestClient, tokens: dict[str, str], machine: Topology) -> None:
    document = topology.to_document(machine)
    doors = [
        ("PUT", "/v1/nodes/n0/topology", document, {Scope.PROBE_WRITE, Scope.ADMIN}),
        ("GET", "/v1/nodes", None, {Scope.PLAN_READ, Scope.PLAN_WRITE, Scope.ADMIN}),
        ("GET", "/v1/jobs", None, {Scope.PLAN_READ, Scope.PLAN_WRITE, Scope.ADMIN}),
        ("POST", "/v1/topologies", {"topology": document}, {Scope.PLAN_WRITE, Scope.ADMIN}),
        ("DELETE", f"/v1/jobs/{'0' * 16}", None, {Scope.PLAN_WRITE, Scope.ADMIN}),
    ]
    for method, path, body, allowed in doors:
        for scope, token in tokens.items():
            response = guarded.request(method, path, json=body, headers=bearer(token))
            if scope in allowed:
                assert response.status_code in (200, 201, 404), (path, scope)
            else:
                assert (response.status_code, response.json()["code"]) == (403, "forbidden"), (path, scope)
        for headers in ({}, bearer("synth_wrong"), {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}):
            response = guarded.request(method, path, json=body, headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


def test_every_path_of_the_api_is_guarded(guarded: TestClient) -> None:
    open_paths = {"/livez", "/readyz", "/version", "/metrics"}
    for path, methods in guarded.get("/openapi.json").json()["paths"].items():
        for method in methods:
            filled = path.replace("{digest}", "0" * 64).replace("{id}", "0" * 16).replace("{rank}", "0")
            response = guarded.request(method, filled.replace("{name}", "0" * 64))
            if path in open_paths:
                assert response.status_code == 200, path
            else:
                assert response.status_code in (401, 415, 422), path
    answer = guarded.get("/v1/resolve", params={"topology": "0" * 64, "collective": "alltoall", "bytes": 1})
    assert answer.status_code == 401


def test_a_reader_may_not_start_a_job(guarded: TestClient, tokens: dict[str, str], machine: Topology) -> None:
    body = {"topology": topology.to_document(machine)}
    stored = guarded.post("/v1/topologies", json=body, headers=bearer(tokens["plan:write"])).json()
    query = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000, "wait": 20}
    refused = guarded.get("/v1/resolve", params=query, headers=bearer(tokens["plan:read"]))
    assert (refused.status_code, refused.json()["code"]) == (404, "no-plan")
    made = guarded.get("/v1/resolve", params=query, headers=bearer(tokens["plan:write"]))
    assert made.status_code == 200
    read = guarded.get("/v1/resolve", params=query, headers=bearer(tokens["plan:read"]))
    assert read.json() == made.json()
    response = guarded.get(made.json()["url"], headers=bearer(tokens["plan:read"]))
    assert response.headers["cache-control"].startswith("private")


def test_taking_a_line_out_revokes_the_token(guarded: TestClient, tokens: dict[str, str], tmp_path: Path) -> None:
    headers = bearer(tokens["plan:read"])
    assert guarded.get("/v1/jobs", headers=headers).status_code == 200
    path = tmp_path / "tokens"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("plan_read")]
    path.write_text("\n".join(kept))
    assert guarded.get("/v1/jobs", headers=headers).status_code == 401
    path.write_text("nonsense")
    assert guarded.get("/v1/jobs", headers=bearer(tokens["admin"])).status_code == 503


def test_metrics_can_need_a_token(
    make_client: Callable[..., TestClient], tokens: dict[str, str], tmp_path: Path
) -> None:
    client = make_client(tokens=tmp_path / "tokens", metrics_token=True)
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=bearer(tokens["plan:read"])).status_code == 200


def test_without_tokens_a_page_of_another_site_gets_nothing(client: TestClient) -> None:
    for host in ("127.0.0.1:8080", "localhost", "[::1]:80"):
        assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "0.0.0.0"):
        response = client.get("/v1/jobs", headers={"Host": host})
        assert (response.status_code, response.json()["code"]) == (421, "host")


def test_tokens_are_hashed_and_made_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens"
    words = ["serve", "--tokens", str(path), "--new-token"]
    assert main([*words, "probe@rack1=probe:write,plan:read"]) == 0
    token = capsys.readouterr().out.strip()
    assert token not in path.read_text()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    caller = Tokens(path).caller(token)
    assert caller is not None
    assert (caller.name, caller.scopes) == ("probe@rack1", {Scope.PROBE_WRITE, Scope.PLAN_READ})
    assert main([*words, "x=admin", "--json"]) == 0
    assert Tokens(path).caller(json.loads(capsys.readouterr().out)["token"]) is not None
    assert main([*words, "x=root"]) == 2
    assert "probe:write" in capsys.readouterr().err


def test_lines_that_are_wrong_are_named(tmp_path: Path) -> None:
    for line in ("x", "x sha256:00 admin", f"x sha256:{'0' * 64} root", f"x y sha256:{'0' * 64} admin"):
        (tmp_path / "t").write_text(f"# comment\n{line}\n")
        with pytest.raises(InputError, match="line 2 must be"):
            auth.read_tokens(tmp_path / "t")
