import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from synth import plan as plans
from synth import topology
from synth.cli import main as cli
from synth.collective import Collective
from synth.plan import Certificate
from synth.topology import catalog
from tests.plans import chain, direct_alltoall

MACHINE = catalog.build("hgx-h100x1")


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    plans.save(chain(MACHINE, Collective.ALLREDUCE), file)
    return file


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(words)
    out, err = capsys.readouterr()
    return status, out, err


def test_check_says_valid_and_invalid(capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path) -> None:
    status, out, _ = run(capsys, "check", str(plan_file), "--topology", "hgx-h100x1", "--json")
    answer = json.loads(out)
    assert (status, answer["valid"], answer["violations"], answer["bound_checked"]) == (0, True, [], False)
    broken = json.loads(plan_file.read_text())
    for column in broken["transfers"].values():
        del column[-1]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    status, out, _ = run(capsys, "check", str(tmp_path / "broken.json"), "--json")
    (violation,) = json.loads(out)["violations"]
    assert status == 1
    assert (violation["rule"], violation["rank"], violation["chunk"]) == ("not-delivered", 7, 0)


def test_check_finds_catalog_machines_by_fingerprint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = direct_alltoall(MACHINE).with_(certificate=Certificate("cut", 1000 * 7 / 8 / 450, devices=("n0/gpu0",)))
    plans.save(plan, tmp_path / "p.json")
    status, out, _ = run(capsys, "check", str(tmp_path / "p.json"), "--json")
    assert status == 0
    assert json.loads(out)["bound_checked"]


def test_simulate_answers_both_models_and_writes_a_trace(
    capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path
) -> None:
    common = ("simulate", str(plan_file), "--topology", "hgx-h100x1", "--bytes", "1MB", "--json")
    status, out, _ = run(capsys, *common, "--launch-ns", "9000")
    rounds = json.loads(out)
    assert status == 0
    assert rounds["bytes"] == 1_000_000
    assert rounds["rounds"] == 17
    assert rounds["algbw_bytes_per_s"] == pytest.approx(1e6 / rounds["seconds"])
    assert rounds["busiest_links"][0]["seconds"] <= rounds["seconds"]
    trace = tmp_path / "trace.json"
    status, out, _ = run(capsys, *common, "--cost", "timeline", "--trace", str(trace))
    assert json.loads(out)["seconds"] < rounds["seconds"]
    assert json.loads(trace.read_text())["traceEvents"]


def test_simulate_refuses_invalid_plans(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    status, out, err = run(capsys, "simulate", str(plan_file), "--topology", "ndv2x1")
    assert status == 1
    assert out == ""
    assert "lists all" in err


def test_slice_and_expand(capsys: pytest.CaptureFixture[str], plan_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "slice.json"
    status, out, _ = run(capsys, "plan", "slice", str(plan_file), "--rank", "3", "-o", str(target), "--json")
    assert status == 0
    part, rank, digest = plans.load_slice(json.loads(target.read_text()))
    assert (rank, digest) == (3, plans.load(plan_file).digest)
    assert len(part.transfers) == 4
    status, out, _ = run(capsys, "plan", "expand", str(plan_file))
    assert plans.from_document(json.loads(out)).digest == digest


def test_degrade_and_merge_write_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "worse.json"
    words = ("topo", "degrade", "ndv2x1", "--link", "n0/gpu0:n0/gpu4=0.5", "-o", str(target))
    assert run(capsys, *words)[0] == 0
    assert topology.load(target).findings[0].code == "link-degraded"
    for name in ("a", "b"):
        topology.save(catalog.build("hgx-h100x1"), tmp_path / f"{name}.json")
    words = ("topo", "merge", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json")
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert {device.get("node") for device in json.loads(out)["devices"]} == {"a", "b"}


def test_list_shows_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "topo", "list", "--json")
    assert {row["name"] for row in json.loads(out)["topologies"]} == set(catalog.names())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "is not a command"),
        (["check"], "arguments are required: PLAN"),
        (["check", "missing.json"], "missing.json: cannot be read"),
        (["topo", "degrade", "nowhere", "--link", "a:b"], "neither a file nor a catalog machine"),
        (["topo", "degrade", "asym8", "--link", "a"], "A:B=FACTOR"),
        (["topo", "merge"], "required: FILE"),
        (["topo"], "required: ACTION"),
        (["simulate", "x", "--topology", "asym8", "--launch-ns", "soon"], "invalid float"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], message: str
) -> None:
    status, out, err = run(capsys, *words)
    assert status == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    ['{"format": "synth-plan/1", "coll', "[" * 1_000_000, "", "\x00", '{"format": "synth-plan/1", "ranks": NaN}', "[]"],
)
def test_files_that_are_no_plans(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    status, out, err = run(capsys, "check", str(file))
    assert (status, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "bad.json" in err


def test_an_internal_fault_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.cli.topo._list", lambda: 1 / 0)
    status, _, err = run(capsys, "topo", "list")
    assert status == 70
    assert "fault of synth" in err


def test_a_closed_pipe_is_no_fault() -> None:
    script = f"{sys.executable} -m synth topo show hgx-h100x16 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_numpy_numbers_are_printable() -> None:
    from synth.documents import canonical

    assert canonical({"x": np.float64(0.5).item()}) == '{"x":0.5}'
