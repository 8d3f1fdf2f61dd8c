"""What docs/service.md says exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import server
from server.settings import Settings
from synth.client import environment

TEXT = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_every_flag_is_documented_with_its_default() -> None:
    rows = {
        flag: default.strip()
        for flags, default in re.findall(r"^\| (`--[^|]+) \|([^|]*)\|", TEXT, re.MULTILINE)
        for flag in re.findall(r"`(--[a-z-]+)`", flags)
    }
    flags = {f"--{name.replace('_', '-')}": field for name, field in Settings.model_fields.items() if name != "solver"}
    assert set(rows) == set(flags)
    for flag, field in flags.items():
        expected = "none" if field.default is None else "off" if field.default is False else field.default
        if flag != "--workers":
            assert rows[flag] in (str(expected), f"{expected:g}" if isinstance(expected, float) else "-"), flag


def test_every_path_is_documented() -> None:
    paths = json.loads((Path(server.__file__).parent / "openapi.json").read_text())["paths"]
    missing = [path for path in paths if f"`{path}`" not in TEXT]
    assert missing == []


def test_every_variable_of_the_client_is_documented() -> None:
    for name in re.findall(r"^(SYNTH_[A-Z_]+)", environment.__doc__ or "", re.MULTILINE):
        assert f"`{name}`" in TEXT
