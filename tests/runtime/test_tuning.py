"""The tuner: what beats the noise is kept, together where that is better, and exported."""

import json

import pytest

from runtime.tuning import CANDIDATES, parse_settings, tune
from synth.cli.main import main
from synth.errors import InputError, RemoteError


class Machine:
    """A made-up machine: each variable makes all rows faster by a factor; the clock wanders."""

    def __init__(self, factors, wander=(1.0,), broken=()):
        self.factors, self.wander, self.broken, self.starts = factors, wander, broken, []

    def __call__(self, setting):
        self.starts.append(dict(setting))
        if set(setting) & set(self.broken):
            raise RemoteError("a rank failed")
        scale = self.wander[len(self.starts) % len(self.wander)]
        for name, value in setting.items():
            scale /= self.factors.get(f"{name}={value}", 1.0)
        return {"1024 direct": 1e-5 * scale, "1048576 direct": 1e-3 * scale}


def test_what_helps_is_kept_together():
    machine = Machine({"A=1": 1.2, "B=1": 1.1, "C=1": 0.9})
    found = tune(machine, [{"A": "1"}, {"B": "1"}, {"C": "1"}], rounds=2)
    assert dict(found.kept) == {"A": "1", "B": "1"}
    assert found.gain == pytest.approx(1.32)
    assert [round(one.gain, 2) for one in found.tried] == [1.0, 1.2, 1.1, 0.9, 1.32]
    text = found.environment()
    assert text.splitlines() == ["# 1.320 times as fast as NCCL's defaults; noise 1.0%", "export A=1", "export B=1"]
    for position in range(0, len(machine.starts), 2):  # always beside a default of its own
        assert {} in machine.starts[position : position + 2]


def test_of_contradicting_values_the_better():
    found = tune(Machine({"A=1": 1.2, "A=2": 1.3, "B=1": 1.05}), [{"A": "1"}, {"A": "2"}, {"B": "1"}], rounds=2)
    assert dict(found.kept) == {"A": "2", "B": "1"}


def test_gains_within_the_noise_are_not_kept():
    found = tune(Machine({"A=1": 1.03}, wander=(1.0, 1.06, 0.97)), [{"A": "1"}], rounds=3)
    assert found.noise > 0.03
    assert (dict(found.kept), found.gain) == ({}, 1.0)
    assert "no setting beats" in found.environment()


def test_together_worse_than_alone():
    class Clash(Machine):
        def __call__(self, setting):
            rows = super().__call__(setting)
            return {row: value * 2 for row, value in rows.items()} if len(setting) == 2 else rows

    found = tune(Clash({"A=1": 1.2, "B=1": 1.1}), [{"A": "1"}, {"B": "1"}], rounds=2)
    assert (dict(found.kept), round(found.gain, 3)) == ({"A": "1"}, 1.2)


def test_a_setting_that_fails_is_said_and_a_default_that_fails_ends():
    found = tune(Machine({"B=1": 1.2}, broken=("A",)), [{"A": "1"}, {"B": "1"}], rounds=1)
    assert found.tried[1].failure == "a rank failed"
    assert dict(found.kept) == {"B": "1"}

    def nothing(setting):
        raise RemoteError("no GPU")

    with pytest.raises(InputError, match="the default settings cannot be measured: no GPU"):
        tune(nothing, [{"A": "1"}])


def test_settings_are_read():
    assert parse_settings(["NCCL_BUFFSIZE=1 B=x=y", "C=3"]) == ({"NCCL_BUFFSIZE": "1", "B": "x=y"}, {"C": "3"})
    for wrong in ("", "A", "A=", "=1"):
        with pytest.raises(InputError, match="--setting"):
            parse_settings([wrong])
    names = {name for setting in CANDIDATES for name in setting}
    assert {"NCCL_MIN_P2P_NCHANNELS", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_NCHANNELS_PER_NET_PEER"} < names


@pytest.mark.mpi
def test_the_command_starts_fresh_ranks_for_each_setting(tmp_path, capfd):
    """Over MPI: NCCL's settings do nothing there, but every start is real."""
    words = ["bench", "alltoall", "-b", "1KiB", "-g", "2", "-n", "2", "-w", "1", "--schedules", "direct", "--tune"]
    words += ["--tune-rounds", "1", "--setting", "NCCL_BUFFSIZE=8388608", "--json"]
    assert main([*words, "--export", str(tmp_path / "set.sh"), "-J", str(tmp_path / "tuned.json")]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert [one["setting"] for one in answer["tried"][:2]] == [{}, {"NCCL_BUFFSIZE": "8388608"}]
    assert all(one["gain"] > 0 and one["failure"] is None for one in answer["tried"])
    assert (answer["transport"], answer["ranks"]) == ("mpi", 2)
    assert (tmp_path / "set.sh").read_text() == answer["environment"]
    assert json.loads((tmp_path / "tuned.json").read_text())["tried"] == answer["tried"]


def test_ranks_of_a_launcher_do_not_tune(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert main(["bench", "alltoall", "--tune"]) == 2
    assert "--tune: starts its ranks itself" in capsys.readouterr().err
