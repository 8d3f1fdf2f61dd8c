"""One NCCL per process: what the memory map says, and which pairs of versions are refused."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from runtime.communicators import libnccl
from synth.errors import InvalidUsage

TORCH, OTHER = "/venv/nvidia/nccl/lib/libnccl.so.2", "/opt/cupy/libnccl.so.2.32.3"
MAPS = f"""7f00-7f01 r--p 00000000 08:01 11 {TORCH}
7f01-7f02 r-xp 00001000 08:01 11 {TORCH}
7f02-7f03 r--p 00000000 08:01 12 /usr/lib/libnccl-net.so
7f03-7f04 rw-p 00000000 00:00 0 [heap]
7f04-7f05 r--p 00000000 08:01 13 {OTHER}
"""


def test_images_are_found_once_and_plugins_are_none():
    assert libnccl.images(MAPS) == (TORCH, OTHER)
    assert libnccl.images("") == ()


@pytest.mark.parametrize(("version", "text"), [(22809, "2.28.9"), (2708, "2.7.8"), (23203, "2.32.3")])
def test_versions_are_spelled(version, text):
    assert libnccl.spell(version) == text


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {OTHER: 23203}, False),  # no torch, or one without NCCL
        ({TORCH: 22809}, {TORCH: 22809}, False),
        ({TORCH: 22809}, {TORCH: 22809, OTHER: 22809}, False),
        ({TORCH: 22809}, {TORCH: 22809, OTHER: 23203}, True),
        ({TORCH: 22809, OTHER: 23203}, {TORCH: 22809, OTHER: 23203}, False),  # the binding says no version of its own
    ],
)
def test_one_version_beside_torch(monkeypatch, before, after, refused):
    seen = [after, before] if before else [after]
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(libnccl, "_versions", lambda: seen.pop() if len(seen) > 1 else (before and seen[0]))
    if not refused:
        assert libnccl.load_beside_torch("nccl", lambda: "loaded") == "loaded"
        return
    with pytest.raises(InvalidUsage) as error:
        libnccl.load_beside_torch("nccl", lambda: "loaded")
    assert f"torch has loaded NCCL 2.28.9 from {TORCH}, but nccl brings NCCL 2.32.3 from {OTHER}" in str(error.value)
    assert f"LD_PRELOAD={TORCH}" in str(error.value)


@pytest.mark.parametrize(
    ("seen", "own", "refused"), [(23203, 23203, None), (23203, 22809, OTHER), (None, 23203, TORCH)]
)
def test_a_preloaded_library_wins_over_the_one_torch_brought(monkeypatch, seen, own, refused):
    """Both are in the memory map; what counts is what torch and the binding call."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(libnccl, "_versions", lambda: {TORCH: 22809, OTHER: 23203})
    monkeypatch.setattr(libnccl, "_seen_first", lambda: seen)
    binding = SimpleNamespace(version=lambda: own)
    if refused is None:
        assert libnccl.load_beside_torch("nccl", lambda: binding) is binding
        return
    with pytest.raises(InvalidUsage, match=f"torch has loaded NCCL [0-9.]+ from {refused}"):
        libnccl.load_beside_torch("nccl", lambda: binding)


def test_without_torch_nothing_is_asked(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(libnccl, "_versions", lambda: pytest.fail("asked"))
    assert libnccl.load_beside_torch("nccl", lambda: 3) == 3


def test_a_file_that_is_no_library_has_no_version(tmp_path):
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"no library")
    assert libnccl._version(str(path)) is None
