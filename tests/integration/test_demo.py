"""The whole path as a newcomer runs it: probe, serve, solve, eight workers, every byte checked."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi


def processes_naming(text: str) -> list[str]:
    """Command lines of the processes that name the text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def start(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "synth", "demo", "--keep", str(folder), "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_gone(text: str, seconds: float = 15.0) -> list[str]:
    deadline = time.monotonic() + seconds
    while processes_naming(text) and time.monotonic() < deadline:
        time.sleep(0.1)
    return processes_naming(text)


def test_the_demo_moves_every_byte_right(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    out, err = start(folder).communicate(timeout=150)
    answer = json.loads(out)
    assert answer["ok"], err
    assert {row["collective"] for row in answer["results"]} == {"alltoall", "allreduce"}
    for row in answer["results"]:
        assert row["wrong_bytes"] == 0
        assert row["bound"] < row["predicted"] < row["direct"]
        assert row["measured"] > 0 < row["native"]
    assert all("from server" in reason for reason in answer["workers"].values())
    assert Path(answer["timeline"]).read_text().startswith("<svg")
    assert wait_until_gone(str(folder)) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("after", ["listening on", "mpiexec"])
def test_a_demo_that_is_ended_leaves_nothing_running(tmp_path: Path, number: int, after: str) -> None:
    folder = tmp_path / "demo"
    process = start(folder)
    assert process.stderr is not None
    for line in process.stderr:
        if after in line:
            break
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert wait_until_gone(str(folder)) == []


def test_a_capture_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    capture = tmp_path / "three.txt"
    capture.write_text("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tPIX\nGPU1\tPIX\t X \tPIX\nGPU2\tPIX\tPIX\t X \n")
    words = [sys.executable, "-m", "synth", "demo", "--smi", str(capture), "--keep", str(tmp_path / "d")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has 3 GPUs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("left", ["synth.db", "cache"])
def test_a_folder_of_an_earlier_demo_is_refused(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("")
    out, err = start(tmp_path).communicate(timeout=60)
    assert json.loads(out or "{}").get("ok") is not True
    assert f"--keep {tmp_path}: has {left} of an earlier demo" in err + out
    assert sorted(path.name for path in tmp_path.iterdir()) == [left]
