"""``import synth.pytorch``: the same as ``from synth import pytorch``; :mod:`runtime.pytorch` says what it has.

Loads neither torch nor the runtime before something is taken from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synth import upper

if TYPE_CHECKING:
    from runtime.pytorch import (
        MoELayer,
        all_to_all,
        attach,
        combine,
        dispatch,
        interpose,
        interpose_vllm,
    )

__all__ = ["MoELayer", "all_to_all", "attach", "combine", "dispatch", "interpose", "interpose_vllm"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'synth.pytorch' has no attribute {name!r}")
    value = getattr(upper.load("runtime.pytorch"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
