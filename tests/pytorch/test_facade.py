"""``synth.pytorch``: there without torch, loaded on first use, and never another folder named runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import runtime.pytorch
import synth
from runtime.pytorch.groups import devices_of
from synth.errors import InvalidUsage

ROOT = Path(__file__).resolve().parents[2]


def python(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_importing_synth_loads_neither_runtime_nor_torch(tmp_path: Path) -> None:
    code = "import synth, sys; print([name for name in ('runtime', 'torch', 'numpy') if name in sys.modules])"
    assert python(tmp_path, code).strip() == "[]"
    code = "import synth, sys; print(dir(synth.pytorch)); print('torch' in sys.modules)"
    listed, loaded = python(tmp_path, code).splitlines()
    assert "interpose" in listed
    assert loaded == "False"


def test_every_way_of_importing_it_gives_the_same(tmp_path: Path) -> None:
    code = "import sys, synth.pytorch; print([name for name in ('runtime', 'torch', 'numpy') if name in sys.modules])"
    assert python(tmp_path, code).strip() == "[]"
    said = python(tmp_path, "import synth.pytorch as one; from synth import pytorch as other; print(one is other)")
    assert said.strip() == "True"
    said = python(tmp_path, "from synth.pytorch import attach, interpose; print(attach.__module__)")
    assert ("runtime.pytorch.groups" if find_spec("torch") else "'torch' is not installed") in said
    assert "ModuleNotFoundError" in python(tmp_path, "import synth.pytorch.moe")


def test_it_names_what_the_runtime_has() -> None:
    assert synth.pytorch.__all__ == runtime.pytorch.__all__ == dir(synth.pytorch)


def test_a_folder_of_the_users_own_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "__init__.py").write_text("")
    said = python(tmp_path, "import synth.pytorch; synth.pytorch.attach")
    assert "InvalidUsage" in said
    assert f"the folder {tmp_path / 'runtime'} hides synth's package 'runtime'" in said


def test_what_there_is_not() -> None:
    with pytest.raises(AttributeError, match=r"'synth\.pytorch' has no attribute 'dispach'"):
        _ = synth.pytorch.dispach
    if find_spec("torch") is None:
        with pytest.raises(InvalidUsage, match="the Python package 'torch' is not installed"):
            _ = synth.pytorch.attach


def test_a_process_group_gets_the_devices_of_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SYNTH_TOPOLOGY", "SYNTH_RANKS", "SYNTH_PLAN_FILE", "SYNTH_SERVER"):
        monkeypatch.delenv(name, raising=False)
    assert devices_of([4, 5], 8) is None
    assert devices_of([1, 9], 16, "hgx-h100x2") == ("n0/gpu1", "n1/gpu1")
    monkeypatch.setenv("SYNTH_TOPOLOGY", "hgx-h100x2")
    monkeypatch.setenv("SYNTH_RANKS", "8-15")
    assert devices_of([2, 3], 8) == ("n1/gpu2", "n1/gpu3")
    monkeypatch.setenv("SYNTH_RANKS", "0,8")  # of this process group alone
    assert devices_of([2, 3], 8) == ("n0/gpu0", "n1/gpu0")
    assert devices_of([2, 3, 4], 8) is None
