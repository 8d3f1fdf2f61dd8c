import json
from pathlib import Path
from typing import Any

import pytest

from synth import documents, topology
from synth.errors import InputError
from synth.topology import catalog


def document() -> dict[str, Any]:
    return json.loads(topology.dumps(catalog.build("ndv2x1")))


def test_catalog_equals_the_shared_documents(shared: Path) -> None:
    files = sorted((shared / "data/catalog").glob("*.json"))
    assert {file.stem for file in files} == set(catalog.names())
    for file in files:
        built = catalog.build(file.stem)
        assert built == topology.load(file)
        assert built.fingerprint == topology.load(file).fingerprint
        assert topology.dumps(built) == file.read_text().strip()


def test_round_trip_keeps_everything() -> None:
    machine = topology.degrade(catalog.build("asym8"), {("n0/gpu0", "n0/nvsw0"): 0.5, ("n0/gpu1", "n0/host"): 0})
    assert topology.from_document(json.loads(topology.dumps(machine))) == machine
    assert [finding.code for finding in machine.findings] == ["link-degraded", "link-down"]


def test_unknown_keys_are_ignored() -> None:
    made = document()
    made["future"] = [1, 2]
    made["devices"][0]["future"] = True
    assert topology.from_document(made) == catalog.build("ndv2x1")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "synth-topology/2", "reads synth-topology/1"),
        (["devices", 0, "kind"], "tpu", "one of gpu, nic, switch, host"),
        (["devices", 1, "id"], "n0/gpu0", "n0/gpu0 stands twice"),
        (["devices"], {}, "must be an array, not an object"),
        (["links", 3, "bytes_per_s"], -5, "must be above 0"),
        (["links", 3, "bytes_per_s"], 0, "must be above 0"),
        (["links", 3, "bytes_per_s"], True, "must be a number"),
        (["links", 3, "latency_ns"], -1, "must be at least 0"),
        (["links", 3, "dst"], "n0/gpu9", "names n0/gpu9"),
        (["links", 3, "dst"], None, "must be a string, not null"),
        (["links", 3], "x", "must be an object"),
        (["links", 3, "class"], "warp", "one of nvlink"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, message: str) -> None:
    made: Any = document()
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(InputError, match=message):
        topology.from_document(made, subject="file.json")


def test_self_links_are_refused() -> None:
    made = document()
    made["links"][0]["dst"] = made["links"][0]["src"]
    with pytest.raises(InputError, match="to itself"):
        topology.from_document(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "synth-topology/1", "na', "line 1 column"),
        ("", "not JSON"),
        ('{"x": NaN}', "NaN"),
        ('{"x": -Infinity}', "Infinity"),
        ("[" * 10_000_000, "nested too deeply"),
        ('{"x": ' + "9" * 5000 + "}", "not usable JSON"),
        (b"\xff\xfe{", "UTF-8"),
    ],
)
def test_text_that_is_no_document(text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        documents.parse(text)


def test_canonical_text() -> None:
    assert documents.canonical({"b": 1.0, "a": [2.5, -0.0, "é"]}) == '{"a":[2.5,0,"é"],"b":1}'
    with pytest.raises(InputError, match="NaN"):
        documents.canonical({"x": float("nan")})


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        documents.write(tmp_path / "none" / "x.json", "{}")
    target = tmp_path / "x.json"
    documents.write(target, "{}")
    assert target.read_text() == "{}"
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.json"
    documents.write(target, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="No space left"):
        documents.write(target, "new")
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
