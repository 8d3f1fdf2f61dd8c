"""Unmodified code on plans: ``torch.distributed.all_to_all_single`` in one process group goes through a synth group.

DeepSpeed-MoE, Megatron and others call that function; nothing in them has to change.
"""

from __future__ import annotations

from importlib import import_module
from types import TracebackType
from typing import Any

from runtime.group import Group

_NAME = "all_to_all_single"


class Interposed:
    """While this is in place, calls in ``process_group`` use ``group``; :meth:`remove` puts everything back.

    Args:
        group: a synth group with the same ranks in the same order.
        process_group: torch's; None for the default one.
    """

    def __init__(self, group: Group, process_group: Any = None) -> None:
        self._distributed: Any = import_module("torch.distributed")
        self._group, self._process_group = group, process_group
        self._original = vars(self._distributed)[_NAME]
        vars(self._distributed)[_NAME] = self._all_to_all_single

    def remove(self) -> None:
        """Put torch's own function back."""
        vars(self._distributed)[_NAME] = self._original

    def __enter__(self) -> Interposed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.remove()

    def _all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        if group is not self._process_group or input.ndim == 0:
            return self._original(output, input, output_split_sizes, input_split_sizes, group, async_op)
        sizes = None if not input_split_sizes else [int(size) for size in input_split_sizes]
        handle = self._group.all_to_all(input, sizes, out=output, wait=not async_op)
        return _Work(handle) if async_op else None


class _Work:
    """What torch calls a work: something to wait for."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def wait(self, timeout: Any = None) -> bool:
        """Make the current stream wait."""
        self._handle.wait()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return bool(self._handle.done())


def interpose(group: Group, process_group: Any = None) -> Interposed:
    """Route ``all_to_all_single`` of a process group through ``group``."""
    return Interposed(group, process_group)
