"""A real ``synth serve`` process: killed, stopped, refused, and its database full."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from synth.cli.main import main
from synth.topology import Topology
from tests.server import fake_solver as fake
from tests.server.conftest import Server, post_topology, wait_for_job
from tests.server.test_jobs import alive, pids


@pytest.fixture
def connect() -> Iterator[Callable[[str], httpx2.Client]]:
    opened: list[httpx2.Client] = []

    def make(url: str) -> httpx2.Client:
        opened.append(httpx2.Client(base_url=url, timeout=30, trust_env=False))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "synth.cli.main", "serve", *words], capture_output=True, text=True, timeout=60
    )


def start_slow(client: httpx2.Client, machine: Topology, fake_solver: Path, *, time_limit: float) -> str:
    stored = post_topology(client, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000}
    id: str = client.post("/v1/plans", json=ask | {"seed": fake.SLOW, "time_limit": time_limit}).json()["job"]["id"]
    wait_for_job(client, id, until=("running",))
    while not fake_solver.exists() or not pids(fake_solver):
        time.sleep(0.02)
    return id


def test_killed_in_the_middle_of_a_solve_the_job_finishes_once(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client], machine: Topology, fake_solver: Path
) -> None:
    first = serve("--lease-seconds", "1")
    id = start_slow(connect(first.url), machine, fake_solver, time_limit=2)
    assert first.kill(signal.SIGKILL) == -signal.SIGKILL
    (orphan,) = pids(fake_solver)
    end = time.monotonic() + 5
    while alive(orphan) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(orphan), "the solving process outlived its server"

    client = connect(serve("--lease-seconds", "1").url)
    job = wait_for_job(client, id)
    assert (job["state"], job["attempt"]) == ("done", 2)
    assert fake_solver.read_text().count("start") == 2
    assert fake_solver.read_text().count("end") == 1
    assert [found["id"] for found in client.get("/v1/jobs").json()["jobs"]] == [id]
    assert [found["digest"] for found in client.get("/v1/plans").json()["plans"]] == [job["plan"]]
    metrics = client.get("/metrics").text
    assert 'synth_jobs_ended_total{state="done"} 1.0' in metrics


def test_two_servers_on_one_database_share_the_jobs(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client], machine: Topology, fake_solver: Path
) -> None:
    first, second = (connect(serve().url) for _ in range(2))
    stored = post_topology(first, machine)
    ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1000, "time_limit": 0.3}
    ids = [first.post("/v1/plans", json=ask | {"seed": 100 + number}).json()["job"]["id"] for number in range(6)]
    jobs = [wait_for_job(second, id) for id in ids]
    assert {(job["state"], job["attempt"]) for job in jobs} == {("done", 1)}
    assert fake_solver.read_text().count("start") == 6
    waited = second.get("/v1/resolve", params={"topology": stored["digest"], "collective": "alltoall", "bytes": 9000})
    assert waited.status_code == 202
    wait_for_job(first, waited.json()["job"]["id"])


def test_sigterm_gives_the_lease_back_and_exits_with_0(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client], machine: Topology, fake_solver: Path
) -> None:
    server = serve()
    id = start_slow(connect(server.url), machine, fake_solver, time_limit=1)
    begin = time.monotonic()
    assert server.kill(signal.SIGTERM) == 0
    assert time.monotonic() - begin < 5
    assert server.process.stdout is not None
    assert server.process.stdout.read() == "synth serve: stopped\n"
    assert not alive(pids(fake_solver)[0])
    client = connect(serve("--workers", "0").url)
    job = client.get(f"/v1/jobs/{id}").json()
    assert (job["state"], job["attempt"]) == ("queued", 0)


def test_while_draining_it_is_alive_but_not_ready(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client]
) -> None:
    server = serve("--drain-seconds", "2")
    client = connect(server.url)
    assert client.get("/readyz").json() == {"ready": True}
    server.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 1.5
    while (ready := client.get("/readyz")).status_code == 200 and time.monotonic() < end:
        time.sleep(0.02)
    assert (ready.status_code, ready.json()["code"]) == (503, "service-unavailable")
    assert client.get("/livez").json() == {"alive": True}
    assert server.process.wait(10) == 0


def test_ctrl_c_stops_it(serve: Callable[..., Server]) -> None:
    assert serve().kill(signal.SIGINT) == 0


def test_a_waiting_request_is_answered_before_the_server_stops(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client], machine: Topology, fake_solver: Path
) -> None:
    import threading

    server = serve()
    client = connect(server.url)
    start_slow(client, machine, fake_solver, time_limit=60)
    query = {"topology": machine.fingerprint, "collective": "alltoall", "bytes": 1000, "wait": 50}
    replies: list[httpx2.Response] = []
    thread = threading.Thread(target=lambda: replies.append(client.get("/v1/resolve", params=query)))
    thread.start()
    time.sleep(0.5)
    assert server.kill(signal.SIGTERM) == 0
    thread.join(10)
    assert [reply.status_code for reply in replies] == [202]


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", str(port), "--db", str(tmp_path / "x.db"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"synth: --port {port}: 127.0.0.1 cannot be listened on (Address already in use)")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--db", "/nowhere/x.db"], "--db /nowhere/x.db: cannot be opened (unable to open database file)"),
        (["--db", "{text}"], "cannot be opened (file is not a database)"),
        (["--db", "oracle+none://x"], "is neither a file name nor a usable database URL"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0: would let anybody on the network in, as there are no tokens"),
        (["--host", "no such host", "--allow-remote"], "cannot be listened on"),
        (["--port", "70000"], "--port 70000: Input should be less than or equal to 65535"),
        (["--workers", "many"], "--workers many: Input should be a valid integer"),
        (["--tokens", "/nowhere"], "/nowhere: cannot be read (No such file or directory)"),
        (["--tokens", "{text}"], "line 1 must be 'name sha256:HEX scope,scope'"),
        (["--tls-cert", "{text}"], "--tls-cert: goes with --tls-key"),
        (["--tls-cert", "{text}", "--tls-key", "{text}"], "--tls-cert: cannot be used"),
        (["--new-token", "x=plan:read"], "--new-token: needs --tokens FILE"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("just some text, and long enough to be taken for something else\n" * 20)
    flags = [flag.replace("{text}", str(tmp_path / "text")) for flag in flags]
    if "--db" not in flags:
        flags += ["--db", str(tmp_path / "x.db")]
    assert main(["serve", "--port", "0", *flags]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_full_disk_is_a_problem_and_passes(
    serve: Callable[..., Server], connect: Callable[[str], httpx2.Client], machine: Topology, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no permission to mount a small tmpfs: {mounted.stderr.decode().strip()}")
    try:
        client = connect(serve("--workers", "0", db=small / "synth.db").url)
        stored = post_topology(client, machine)
        with open(small / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass
        ask = {"topology": stored["digest"], "collective": "alltoall", "bytes": 1}
        replies = (client.post("/v1/plans", json=ask | {"seed": seed}) for seed in range(200, 1000))
        full = next(reply for reply in replies if reply.status_code != 202)
        assert full.status_code == 507, full.text
        assert full.json()["code"] == "storage-full"
        assert full.headers["retry-after"] == "30"
        assert client.get(f"/v1/topologies/{stored['digest']}").status_code == 200
        (small / "filler").unlink()
        assert client.post("/v1/plans", json=ask | {"seed": 1000}).status_code == 202
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_full_disk_at_start_is_one_sentence(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no permission to mount a small tmpfs: {mounted.stderr.decode().strip()}")
    try:
        done = run("--port", "0", "--db", str(small / "synth.db"))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    assert done.returncode == 2
    assert "cannot be opened" in done.stderr
    assert done.stderr.count("\n") == 1
