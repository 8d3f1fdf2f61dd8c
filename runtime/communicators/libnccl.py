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


def mismatch(binding: str, torch: tuple[int, str], own: tuple[int, str]) -> str | None:
    """Why a binding cannot be used beside torch, or None when both use the same NCCL.

    Args:
        binding: its name.
        torch: version and path of the NCCL that torch calls.
        own: the same of the binding.
    """
    if torch[0] == own[0]:
        return None
    return (
        f"transport {binding}: torch has loaded NCCL {spell(torch[0])} from {torch[1]}, but {binding} brings NCCL "
        f"{spell(own[0])} from {own[1]}; one process can use one NCCL only: install the version that torch uses, or "
        f"start with LD_PRELOAD={torch[1]}"
    )


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
    if before:
        after = _versions()
        # what the whole process sees first, such as a preloaded library, wins over the one that torch brought
        torch_version = _seen_first() or next(iter(before.values()))
        own_version = loaded.version() if hasattr(loaded, "version") else _newest(before, after)
        why = mismatch(binding, (torch_version, _path(before, torch_version)), (own_version, _path(after, own_version)))
        if why is not None:
            raise InvalidUsage(why, subject=binding)
    return loaded


def _newest(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """The version that came in last."""
    return next((version for path, version in after.items() if path not in before), next(iter(before.values())))


def _path(versions: Mapping[str, int], wanted: int) -> str:
    return next((path for path, version in versions.items() if version == wanted), "an unknown place")


def _seen_first() -> int | None:
    """Version of the NCCL that every library of this process sees; None where none is visible to all."""
    answer = ctypes.c_int()
    try:
        asked = ctypes.CDLL(None).ncclGetVersion(ctypes.byref(answer))
    except (OSError, AttributeError):
        return None
    return answer.value if asked == 0 else None


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
