"""Where the shared captures lie, and how tests read them."""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TOPO = DATA / "topo"

needs_captures = pytest.mark.skipif(not TOPO.is_dir(), reason="the shared captures are not beside the repository")


def capture(number: str) -> Path:
    """The capture whose file name starts with this number."""
    return next(TOPO.glob(f"{number}-*"))


def text(number: str) -> str:
    with open(capture(number), encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
