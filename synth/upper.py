"""Reaching the packages above synth by name, so that importing synth stays light.

A training repository often has a ``runtime`` or ``server`` folder of its own that wins over the installed one; the
module found is checked to be ours.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from synth.errors import InvalidUsage

_EXTRAS = {"probe": "probe", "solver": "solver", "server": "server", "runtime": "mpi"}


def load(name: str) -> ModuleType:
    """Import a module of synth, solver, probe, server or runtime.

    Raises:
        InvalidUsage: another folder of the same name is in the way, or a package it needs is not installed.
    """
    top = name.partition(".")[0]
    try:
        package = importlib.import_module(top)
        found = Path(package.__file__ or "").resolve().parent if package.__file__ else None
        ours = Path(__file__).resolve().parent.parent / top
        if found != ours:
            where = found or next(iter(package.__path__), "an unknown place")
            raise InvalidUsage(
                f"the folder {where} hides synth's package '{top}'; rename it or start Python elsewhere",
                subject=str(where),
            )
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing.partition(".")[0] in ("synth", *_EXTRAS):
            raise InvalidUsage(f"{missing}: is not part of this installation of synth", subject=missing) from error
        extra = _EXTRAS.get(top, "demo")
        raise InvalidUsage(
            f"the Python package '{missing}' is not installed; install synth with its extra {extra}", subject=missing
        ) from error
