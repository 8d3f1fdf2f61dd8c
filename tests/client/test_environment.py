from __future__ import annotations

from pathlib import Path

import pytest

from synth.client import Environment
from synth.errors import InputError


def test_nothing_set(tmp_path: Path) -> None:
    environment = Environment.read({"XDG_CACHE_HOME": str(tmp_path)})
    assert environment.server is None
    assert environment.plan_files == ()
    assert environment.cache == tmp_path / "synth"
    assert not environment.cache_wanted


def test_everything_set(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    environment = Environment.read(
        {
            "SYNTH_SERVER": "https://host:8443/",
            "SYNTH_TOKEN_FILE": str(tmp_path / "token"),
            "SYNTH_CA_FILE": "/ca.pem",
            "SYNTH_PLAN_FILE": "/a.json:/b.json",
            "SYNTH_CACHE": "/cache",
            "SYNTH_TIMEOUT": "2.5",
            "SYNTH_WAIT": "0",
        }
    )
    assert environment == Environment(
        server="https://host:8443",
        token="secret",
        ca_file="/ca.pem",
        plan_files=("/a.json", "/b.json"),
        cache=Path("/cache"),
        cache_wanted=True,
        timeout=2.5,
        wait=0.0,
    )
    assert Environment.read({"SYNTH_CACHE": "off"}).cache is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SYNTH_SERVER", "host:80"),
        ("SYNTH_SERVER", "ftp://host"),
        ("SYNTH_SERVER", "http://"),
        ("SYNTH_SERVER", "http://a b"),
        ("SYNTH_TIMEOUT", "soon"),
        ("SYNTH_TIMEOUT", "nan"),
        ("SYNTH_TIMEOUT", "-1"),
        ("SYNTH_WAIT", "inf"),
        ("SYNTH_TOKEN", "a\nb"),
        ("SYNTH_TOKEN_FILE", "/nowhere/token"),
    ],
)
def test_bad_values_are_one_sentence(name: str, value: str) -> None:
    with pytest.raises(InputError) as caught:
        Environment.read({name: value})
    assert "\n" not in caught.value.message
    if name != "SYNTH_TOKEN_FILE":
        assert caught.value.message.startswith(f"{name}: ")
