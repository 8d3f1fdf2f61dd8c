"""HTTPS, with and without certificates of clients, against the light client."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from synth.client import Client
from synth.errors import ServiceUnavailable
from synth.topology import Topology
from tests.server.conftest import Server

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def test_the_client_trusts_the_named_authority_and_nobody_else(
    serve: Callable[..., Server], machine: Topology, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    server = serve("--tls-cert", str(cert), "--tls-key", str(key), "--workers", "0")
    assert server.url.startswith("https://127.0.0.1:")
    assert Client(server.url, ca_file=str(cert)).post_topology(machine)["created"] is True
    with pytest.raises(ServiceUnavailable, match="self-signed certificate"):
        Client(server.url, timeout=5).post_topology(machine)
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        Client(server.url.replace("https", "http"), timeout=0.5).post_topology(machine)

    strict = serve("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(cert), "--workers", "0")
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        Client(strict.url, ca_file=str(cert), timeout=0.5).post_topology(machine)
