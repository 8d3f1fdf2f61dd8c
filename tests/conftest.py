"""What all tests share: where the shared data lies, and a visible skip where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real captures and reference documents beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: reference documents and captures are not part of the repository")
    return SHARED
