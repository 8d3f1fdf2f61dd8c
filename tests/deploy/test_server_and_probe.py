"""Units, Dockerfiles and compose as far as they can be checked without systemd running, Docker or a GPU."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from synth.cli.main import COMMANDS, Parser
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
        assert program == "/opt/synth/bin/synth"
        parse_command(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS:  # the programs are installed elsewhere; everything else stays as it is
        text = (
            unit.read_text().replace("/opt/synth/bin/synth", "/bin/true").replace("/opt/synth/bin/python", "/bin/true")
        )
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)],
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
    for extra in ",".join(re.findall(r'"\.\[([\w,]+)\]"', text)).split(","):
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_entry_point_parses(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    entry, arguments = (
        json.loads(match) for name in ("ENTRYPOINT", "CMD") for match in re.findall(rf"^{name} (\[.+\])$", text, re.M)
    )
    assert entry[0] == "/opt/synth/bin/synth"
    parse_command([*entry, *arguments][1:])


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


def test_the_agents_command_reports_to_a_server(serve: Callable[..., Server], shared: Path, tmp_path: Path) -> None:
    """The unit's own command line, on a capture instead of this machine, until SIGTERM."""
    server = serve("--workers", "0")
    unit = (DEPLOY / "systemd" / "synth-probe.service").read_text()
    (words,) = (line[1:] for line in commands(unit.replace("%H", "n0")))
    capture = next((shared / "data" / "topo").glob("050*"))
    done = subprocess.Popen(
        [sys.executable, "-m", "synth.cli.main", *words, "--smi", str(capture)],
        env=os.environ | {"SYNTH_SERVER": server.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert done.stderr is not None
        assert done.stderr.readline().startswith("reported n0: ")
        reported = httpx2.get(f"{server.url}/v1/nodes", trust_env=False).json()["nodes"]
        assert [node["name"] for node in reported] == ["n0"]
        done.send_signal(signal.SIGTERM)
        assert done.wait(20) == 0
    finally:
        done.kill()
        done.wait()
        done.stderr.close()
