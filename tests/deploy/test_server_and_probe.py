"""Units, Dockerfiles and compose as far as they can be checked without systemd running, Docker or a GPU."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from synth import topology
from synth.cli.main import COMMANDS, Parser
from synth.topology import catalog
from tests.server.conftest import Server, fake_solver, serve

__all__ = ["fake_solver", "serve"]  # fixtures

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("synth-*.service"))
DOCKERFILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))


def parse_command(words: list[str]) -> argparse.Namespace:
    """Parse ``synth COMMAND flags`` as the command line does; raises where a flag does not exist."""
    module, _ = COMMANDS[words[0]]
    parser = Parser(prog=f"synth {words[0]}", allow_abbrev=False)
    importlib.import_module(module).configure(parser)
    return parser.parse_args(words[1:])


def commands(text: str) -> list[list[str]]:
    """The command lines of a unit."""
    return [shlex.split(line) for line in re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_every_command_of_a_unit_exists(unit: Path) -> None:
    found = commands(unit.read_text())
    assert found
    for program, *words in found:
        if program == "/opt/synth/bin/synth":
            parse_command(words)
        else:
            assert (program, words[0]) == ("/opt/synth/bin/python", "-m")
            assert importlib.util.find_spec(words[1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = [*UNITS, *(DEPLOY / "systemd").glob("*.timer")]
    for unit in units:  # the programs are installed elsewhere; everything else stays as it is
        text = (
            unit.read_text().replace("/opt/synth/bin/synth", "/bin/true").replace("/opt/synth/bin/python", "/bin/true")
        )
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("name", "most"), [("synth-server", 2.0), ("synth-probe", 4.0)])
def test_the_units_are_hardened(name: str, most: float) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(DEPLOY / "systemd" / f"{name}.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    score = re.search(r"Overall exposure level for \S+ ([0-9.]+)", done.stdout)
    if score is None:
        pytest.skip(f"this systemd-analyze knows no offline security check: {done.stderr.strip()[:100]}")
    assert float(score[1]) <= most


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_copies_what_exists_and_runs_as_nobody_special(dockerfile: Path) -> None:
    text = dockerfile.read_text().replace("\\\n", " ")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    assert users
    assert users[-1] == "10001:10001"
    assert text.rindex("USER ") < text.rindex("ENTRYPOINT ")
    assert ":latest" not in text
    packages = re.findall(r"^packages = (\[.+\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for package in json.loads(packages[0]):
        assert f"COPY {package} ./{package}\n" in text, package
    for extra in re.findall(r'"\.\[(\w+)\]"', text):
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_the_servers_entry_point_parses() -> None:
    text = (DEPLOY / "docker" / "server.Dockerfile").read_text()
    entry, arguments = (
        json.loads(match) for name in ("ENTRYPOINT", "CMD") for match in re.findall(rf"^{name} (\[.+\])$", text, re.M)
    )
    args = parse_command([*entry, *arguments][1:])
    assert (args.host, args.db) == ("0.0.0.0", "/data/synth.db")


def test_compose_names_what_exists() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    server = compose["services"]["server"]
    context = (DEPLOY / "docker" / server["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / server["build"]["dockerfile"]).is_file()
    parse_command(["serve", *server["command"]])
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    settings = importlib.import_module("server.settings").Settings.model_fields
    for name in server["environment"]:
        assert name.removeprefix("SYNTH_SERVE_").lower() in settings
    assert set(server["secrets"]) <= set(compose["secrets"])


def test_the_probes_script_reports_to_a_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The real script, client and server; only the probe itself is a stand-in that writes a catalog machine."""
    server = serve("--workers", "0")
    (tmp_path / "bin").mkdir()
    topology.save(catalog.build("hgx-h100x1"), tmp_path / "machine.json")
    stand_in = tmp_path / "bin" / "synth"
    stand_in.write_text(f'#!/bin/sh\n[ "$1 $2 $3 $4" = "probe --node n0 -o" ] && cp {tmp_path}/machine.json "$5"\n')
    stand_in.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    environment = os.environ | {
        "SYNTH_SERVER": server.url,
        "SYNTH_NODE": "n0",
        "SYNTH_RUN": str(tmp_path),
        "SYNTH_BIN": str(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    script = ["sh", str(DEPLOY / "docker" / "probe.sh")]
    for word in ("changed", "unchanged"):
        done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"n0: {word}, 0 findings, fingerprint ")
    reported = httpx2.get(f"{server.url}/v1/nodes", trust_env=False).json()["nodes"]
    assert [node["name"] for node in reported] == ["n0"]
    server.kill()
    done = subprocess.run(
        script, env=environment | {"SYNTH_TIMEOUT": "0.5"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "does not answer (Connection refused)" in done.stderr
