"""One NCCL per process: the libnccl that torch has loaded is the one that plans run on."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from synth.errors import InvalidUsage

_LIBRARY = re.compile(r"/\S*/libnccl\.so[.\d]*$")


def images(maps: str) -> tuple[str, ...]:
    """Paths of the NCCL libraries in a process's memory map, as ``/proc/self/maps`` lists them, in order."""
    found = (_LIBRARY.search(line) for line in maps.splitlines())
    return tuple(dict.fromkeys(match.group() for match in found if match is not None))


def mismatch(binding: str, before: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """Why a binding cannot be used beside torch, or None when both use the same NCCL.

    Args:
        binding: its name.
        before: version by path, of what was loaded beside torch before the binding.
        after: the same once the binding is loaded.
    """
    torch_version = next(iter(before.values()), None)
    if torch_version is None:
        return None
    for path, version in after.items():
        if version != torch_version:
            return (
                f"transport {binding}: torch has loaded NCCL {spell(torch_version)} from {next(iter(before))}, but "
                f"{binding} brings NCCL {spell(version)} from {path}; one process can use one NCCL only: install the "
                f"version that torch uses, or start with LD_PRELOAD={next(iter(before))}"
            )
    return None


def spell(version: int) -> str:
    """``22809`` as ``2.28.9``; older than 2.9 has one digit less."""
    major = 1000 if version < 10000 else 10000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def load_beside_torch(binding: str, load: Callable[[], Any]) -> Any:
    """Load a binding of NCCL; with torch in this process it has to use torch's.

    Raises:
        InvalidUsage: it brings another version than the one torch has loaded.
    """
    before = _versions() if "torch" in sys.modules else {}
    loaded = load()
    why = mismatch(binding, before, _versions() if before else {})
    if why is not None:
        raise InvalidUsage(why, subject=binding)
    return loaded


def _versions() -> dict[str, int]:
    """Version by path of every NCCL in this process."""
    try:
        paths = images(Path("/proc/self/maps").read_text())
    except OSError:
        return {}
    return {path: version for path in paths if (version := _version(path)) is not None}


def _version(path: str) -> int | None:
    answer = ctypes.c_int()
    try:
        asked = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(answer))
    except (OSError, AttributeError):
        return None
    return answer.value if asked == 0 else None
