"""The pages in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from synth import topology
from synth.topology import catalog
from tests.server import fake_solver as fake
from tests.server.conftest import Server, fake_solver, make_plan, post_topology, serve

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

__all__ = ["fake_solver", "serve"]  # fixtures

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.web,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Playwright's own pipes
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that may not fail, complain, or load anything from elsewhere."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    opened.close()
    assert complaints == []
    assert all(url.startswith(("http://127.0.0.1:", "data:")) for url in asked)


@pytest.fixture
def site(serve: Callable[..., Server]) -> Iterator[tuple[str, httpx2.Client]]:
    server = serve()
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        yield server.url, client


def test_from_the_overview_to_a_plan_by_keyboard_alone(site: tuple[str, httpx2.Client], page: Any) -> None:
    url, client = site
    stored = post_topology(client, catalog.build("hgx-h100x2"))
    digest = make_plan(client, topology=stored["digest"], collective="alltoall", bytes=10**6)
    page.goto(url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        if (page.evaluate("document.activeElement.getAttribute('href')") or "").startswith("/plans/"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "what has the focus must be seen"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/plans/{digest}")
    assert page.locator("figure svg rect").count() > 16
    page.get_by_label("Size in bytes").fill("5000000")
    page.keyboard.press("Enter")
    page.wait_for_url("**bytes=5000000")
    assert "5.00 MB" in page.inner_text("main")


def test_a_jobs_progress_is_live(site: tuple[str, httpx2.Client], page: Any) -> None:
    url, client = site
    stored = post_topology(client, catalog.build("hgx-h100x1"))
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000, "seed": fake.SLOW, "time_limit": 6}
    id = client.post("/v1/plans", json=ask).json()["job"]["id"]
    page.goto(f"{url}/jobs/{id}")
    gap = page.locator("[data-field=gap]")
    playwright.expect(gap).to_have_text(re.compile(r"[0-9.]+ %"), timeout=20_000)
    playwright.expect(gap).not_to_have_text(gap.inner_text(), timeout=20_000)
    assert page.inner_text("[data-field=bound_seconds]") == "1.00 s"
    page.get_by_role("link", name="Plan ").click(timeout=20_000)
    page.wait_for_url("**/plans/*")


def test_a_topology_on_a_phone(site: tuple[str, httpx2.Client], page: Any) -> None:
    url, client = site
    machine = catalog.build("asym8")
    client.put("/v1/nodes/n0/topology", json=topology.to_document(machine))
    stored = post_topology(client, machine)
    page.set_viewport_size({"width": 380, "height": 740})
    for path in ("/", "/nodes/n0", f"/topologies/{stored['digest']}"):
        page.goto(url + path)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    assert page.locator("svg.topology circle").count() == len(machine.devices)
    page.get_by_text("All 32 links").click()
    assert page.locator("details tbody tr").count() == 32
    colour = page.evaluate("getComputedStyle(document.querySelector('line.nvlink')).stroke")
    assert colour == "rgb(46, 125, 50)", "the style sheet is in force"
