"""``synth run``: checked execution by local processes, none of which outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.direct import direct_plan
from synth import plan as plans
from synth.cli.main import main
from synth.collective import Collective

pytestmark = pytest.mark.mpi


@pytest.fixture
def plan_path(tmp_path):
    path = tmp_path / "plan.json"
    plans.save(direct_plan(Collective.ALLTOALL, 4), path)
    return str(path)


def test_it_checks_every_byte_and_answers(plan_path, tmp_path, capfd):
    demand = tmp_path / "demand.json"
    demand.write_text(json.dumps({"bytes": [[0, 0, 0, 0], [8, 0, 1000, 4], [12, 0, 0, 0], [0, 0, 5000, 0]]}))
    assert main(["run", plan_path, "--json", "--repeat", "1", "--demand", str(demand)]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["ok"] is True
    assert answer["wrong_bytes"] == 0
    assert answer["ranks"] == 4
    assert answer["seconds"] > 0
    assert answer["native_seconds"] > 0
    assert answer["predicted_seconds"] is None


def test_an_invalid_plan_is_refused(tmp_path, capsys):
    path = tmp_path / "plan.json"
    plans.save(direct_plan(Collective.ALLTOALL, 4).with_(denominator=3), path)
    assert main(["run", str(path)]) == 1
    assert "shares" in capsys.readouterr().err


def ranks_of(marker):
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in environment and state != "Z":
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_it(plan_path, number, tmp_path):
    marker = f"SYNTH_TEST_MARK={tmp_path}"
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-m", "synth", "run", plan_path, "--bytes", "64MiB", "--repeat", "100000"],
        env={**os.environ, name: value},
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    try:
        until = time.monotonic() + 20
        while len(ranks_of(marker)) < 6 and time.monotonic() < until:
            time.sleep(0.1)
        assert len(ranks_of(marker)) >= 6, "the ranks did not start"
    finally:
        process.send_signal(number)
        process.wait(20)
    until = time.monotonic() + 15
    while ranks_of(marker) and time.monotonic() < until:
        time.sleep(0.2)
    assert ranks_of(marker) == []
