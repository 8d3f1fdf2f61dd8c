"""Unmodified code on plans: ``all_to_all_single`` of torch in chosen process groups goes through synth.

DeepSpeed's ``deepspeed.moe.sharded_moe._AllToAll`` and Megatron's ``megatron.core.tensor_parallel.all_to_all`` call
``torch.distributed.all_to_all_single`` by its full name, so replacing the attribute is enough. Code that did ``from
torch.distributed import all_to_all_single`` before keeps torch's own. The functional form, and what torch.compile
makes of either, is an operator: :mod:`runtime.pytorch.functional`. Without a plan, calls go to torch as if nobody had
interposed anything.
"""

from __future__ import annotations

import threading
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

from runtime.group import Group
from runtime.pytorch.functional import FunctionalRoutes
from synth.errors import InvalidUsage

torch: Any = import_module("torch")
_NAME = "all_to_all_single"
_lock = threading.Lock()
_routes: dict[str, Interposed] = {}
"""By the process group's name."""
_original: dict[str, Any] = {}
_functional: list[FunctionalRoutes] = []
"""One while there are routes."""


class Interposed:
    """While this is in place, calls in one process group use a synth group; :meth:`remove` ends that.

    Args:
        group: a synth group with the same ranks in the same order.
        process_group: torch's; None for the default one.
        always: whether calls use it even where there is no plan; else those go to torch.

    Raises:
        InvalidUsage: the process group has other ranks, or is routed already.
    """

    def __init__(self, group: Group, process_group: Any = None, *, always: bool = False) -> None:
        self._group = group
        self._used = True if always else None
        distributed = torch.distributed
        self._key = _name_of(process_group)
        given = (distributed.get_rank(process_group), distributed.get_world_size(process_group))
        if given != (group.rank, group.size):
            raise InvalidUsage(
                f"interpose: this is rank {group.rank} of {group.size} in the synth group, but rank {given[0]} of "
                f"{given[1]} in the process group; make the one with synth.pytorch.attach(process_group)"
            )
        with _lock:
            if self._key in _routes:
                raise InvalidUsage("interpose: this process group goes through a synth group already; remove that")
            if not _routes:
                _original[_NAME] = vars(distributed)[_NAME]
                vars(distributed)[_NAME] = _all_to_all_single
                _functional.append(FunctionalRoutes(_find))
            _routes[self._key] = self

    def remove(self) -> None:
        """Give the process group back to torch. Removing twice is allowed."""
        with _lock:
            if _routes.pop(self._key, None) is not None and not _routes:
                vars(torch.distributed)[_NAME] = _original[_NAME]
                _functional.pop().remove()

    def __enter__(self) -> Interposed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.remove()

    def group(self) -> Group | None:
        """The synth group, if it is used: the first call looks for a plan, and all ranks find alike."""
        if self._used is None:
            self._used = self._group.prepare("alltoall").startswith("plan")
        return self._group if self._used else None


def _name_of(process_group: Any) -> str:
    """The name of a process group, None for the default one; empty where this rank is not in it."""
    return str(getattr(torch.distributed.group.WORLD if process_group is None else process_group, "group_name", ""))


def _find(name: str) -> Group | None:
    """The synth group that calls in the process group of this name use, if any."""
    found = _routes.get(name)
    return None if found is None else found.group()


def _all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """What stands in for torch's function; its arguments and its answer."""
    route = None
    if not torch.compiler.is_compiling() and input.ndim:  # what is compiled gets there through the operator
        route = _find(_name_of(group))
    if route is None:
        return _original[_NAME](output, input, output_split_sizes, input_split_sizes, group, async_op)
    if _given(input_split_sizes) or _given(output_split_sizes):
        sizes = [int(size) for size in input_split_sizes] if _given(input_split_sizes) else None
        handle = route.all_to_all(input, sizes, out=output, wait=not async_op)
    else:  # equal parts, and as torch asks, of inputs equally long on all ranks: no counts have to be exchanged
        counts = np.full((route.size, route.size), input.shape[0] // route.size)
        handle = route.all_to_all(input, counts=counts, out=output, wait=not async_op)
    return Work(handle) if async_op else None


def _given(sizes: Any) -> bool:
    """Whether there are split sizes: a list, or what Megatron passes, a numpy array or a tensor."""
    return sizes is not None and len(sizes) > 0


class Work:
    """What torch calls a work: something to wait for."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def wait(self, timeout: Any = None) -> bool:
        """Make the current stream wait; on host memory, wait. The group's own deadline holds, whatever the timeout."""
        self._handle.wait()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return bool(self._handle.done())


def interpose(group: Group, process_group: Any = None, *, always: bool = False) -> Interposed:
    """Route ``all_to_all_single`` of a process group through ``group``; see :class:`Interposed`."""
    return Interposed(group, process_group, always=always)
