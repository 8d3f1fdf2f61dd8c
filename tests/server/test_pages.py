"""The pages as text; in a browser: tests/web/test_browser.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from server import auth
from server.web.figures import topology_svg
from synth import topology
from synth.topology import Finding, Severity, Topology, catalog
from tests.server import fake_solver as fake
from tests.server.conftest import make_plan, post_topology, wait_for_job

VOID = {"meta", "link", "input", "br", "img"}


class Outline(HTMLParser):
    """Checks that tags are closed in order, and keeps what the tests ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(client: TestClient, path: str, status: int = 200) -> Outline:
    response = client.get(path)
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Outline()
    page.feed(response.text)
    assert page.open == []
    for tag, attributes in page.tags:
        assert "style" not in attributes, tag  # the policy would block it
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href"):
            assert not re.match(r"(https?:)?//", attributes.get(name) or ""), attributes
    assert [tag for tag, _ in page.tags].count("h1") == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    return page


def test_every_page(client: TestClient, machine: Topology) -> None:
    outline(client, "/")
    stored = post_topology(client, machine)
    client.put("/v1/nodes/n0/topology", json=topology.to_document(machine))
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=10**6)
    id = client.get("/v1/jobs").json()["jobs"][0]["id"]
    links = {attributes.get("href") for _, attributes in outline(client, "/").tags}
    for path in (f"/jobs/{id}", f"/plans/{digest}", f"/topologies/{stored['digest']}", "/nodes/n0"):
        assert path in links
        outline(client, path)
    assert "alltoall of 1.00 MB among 8 ranks" in client.get(f"/plans/{digest}").text
    assert "alltoall of 5.00 MB among 8 ranks" in client.get(f"/plans/{digest}?bytes=5000000").text
    assert "direct exchange, rounds" in client.get(f"/plans/{digest}").text
    assert "time per link" in client.get(f"/plans/{digest}").text


def test_what_is_not_there_is_a_page_too(client: TestClient) -> None:
    for path in (f"/plans/{'0' * 64}", f"/topologies/{'0' * 64}", "/jobs/x", "/nodes/n9"):
        outline(client, path, 404)
    assert client.get("/static/../pages.py").status_code == 404
    assert client.get("/static/pages.py").status_code == 404
    assert client.get("/static/live.js").headers["content-type"].startswith("text/javascript")


def test_names_cannot_smuggle_markup(client: TestClient, machine: Topology) -> None:
    evil = "<script>alert(1)</script>"
    finding = Finding(code=evil, severity=Severity.ERROR, subject="n0/gpu0", message=evil)
    stored = post_topology(client, replace(machine, name=evil, findings=(finding,)))
    for path in ("/", f"/topologies/{stored['digest']}"):
        assert evil not in client.get(path).text
        scripts = [a for tag, a in outline(client, path).tags if tag == "script"]
        assert all(a.get("src") for a in scripts)


def test_a_failed_job_says_why(client: TestClient, machine: Topology) -> None:
    stored = post_topology(client, machine)
    ask: dict[str, Any] = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    id = client.post("/v1/plans", json=ask | {"seed": fake.INFEASIBLE}).json()["job"]["id"]
    wait_for_job(client, id)
    assert "rank 0 is an island" in client.get(f"/jobs/{id}").text


def test_with_tokens_the_pages_ask_for_one(make_client: Callable[..., TestClient], tmp_path: Path) -> None:
    secret, line = auth.new_token("me", ["plan:read"])
    (tmp_path / "tokens").write_text(line)
    client = make_client(tokens=tmp_path / "tokens")
    sent = client.get("/", follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, "/login")
    assert "This token is not known" in client.post("/login", content=b"token=wrong").text
    entered = client.post("/login", content=f"token={secret}", follow_redirects=False)
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Overview" in client.get("/").text
    assert client.get("/v1/jobs").status_code == 200
    assert client.delete(f"/v1/jobs/{'0' * 16}").status_code == 401  # the cookie only looks


@pytest.mark.parametrize("name", catalog.names())
def test_every_catalog_machine_is_drawn(name: str) -> None:
    machine = catalog.build(name)
    picture = ElementTree.fromstring(topology_svg(machine))
    space = "{http://www.w3.org/2000/svg}"
    pairs = {frozenset((link.src, link.dst)) for link in machine.links}
    assert len(picture.findall(f".//{space}circle")) == len(machine.devices)
    assert len(picture.findall(f"{space}line")) == len(pairs)
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    for circle in picture.findall(f".//{space}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height
