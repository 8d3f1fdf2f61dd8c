"""PyTorch on top of a group, loaded on first use; scripts reach it as ``synth.pytorch``.

================================= ======================================================================
``attach(process_group)``         a group with the ranks of one of torch's process groups
``interpose(ep, process_group)``  unmodified ``torch.distributed.all_to_all_single`` on plans
``interpose_vllm(ep, group)``     vLLM's dispatch and combine on plans
``all_to_all(rows, ep, counts)``  differentiable
``dispatch``, ``combine``         tokens to the ranks of their experts and back, differentiable
``MoELayer``                      a reference layer on top of them
================================= ======================================================================
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from synth.errors import InvalidUsage

if TYPE_CHECKING:
    from runtime.pytorch.autograd import all_to_all
    from runtime.pytorch.groups import attach
    from runtime.pytorch.interposed import interpose
    from runtime.pytorch.moe import MoELayer, combine, dispatch
    from runtime.pytorch.vllm import interpose_vllm

_HOME = {
    "MoELayer": "moe",
    "all_to_all": "autograd",
    "attach": "groups",
    "combine": "moe",
    "dispatch": "moe",
    "interpose": "interposed",
    "interpose_vllm": "vllm",
}

__all__ = ["MoELayer", "all_to_all", "attach", "combine", "dispatch", "interpose", "interpose_vllm"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'synth.pytorch' has no attribute {name!r}")
    if find_spec("torch") is None:
        raise InvalidUsage(
            "synth.pytorch: the Python package 'torch' is not installed; install PyTorch", subject="torch"
        )
    value = getattr(import_module(f"runtime.pytorch.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
