"""Functional collectives on plans: ``torch.ops._c10d_functional.all_to_all_single`` in chosen process groups.

torchtitan's expert parallelism (``all_to_all_single`` and ``all_to_all_single_autograd`` of
``torch.distributed._functional_collectives``, however they were imported) and whatever torch.compile makes of
``all_to_all_single`` end in this one operator. torch has one kernel for all devices; kernels for the CPU and for CUDA
go before it while any process group is routed, and hand on to it what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from runtime.group import Group

_NAMESPACE, _OPERATOR = "_c10d_functional", "all_to_all_single"


class FunctionalRoutes:
    """While this is in place, the operator asks for each call where it goes; :meth:`remove` ends that.

    Args:
        find: the synth group for the name of a process group, or None for torch's own.
    """

    def __init__(self, find: Callable[[str], Group | None]) -> None:
        torch: Any = import_module("torch")
        import_module("torch.distributed._functional_collectives")
        self._find = find
        self._torch_dispatch = torch._C.DispatchKey.CompositeExplicitAutograd
        self._operator = getattr(getattr(torch.ops, _NAMESPACE), _OPERATOR).default
        self._library = torch.library.Library(_NAMESPACE, "IMPL")
        for device in ("CPU", "CUDA"):
            self._library.impl(_OPERATOR, self._call, device)

    def remove(self) -> None:
        """Give the operator back to torch."""
        self._library._destroy()

    def _call(self, input: Any, output_sizes: Sequence[int], input_sizes: Sequence[int], group: Any) -> Any:
        """The operator: it gives a new tensor, enqueued on the current stream, for which nothing has to be waited."""
        route = self._find(group if isinstance(group, str) else group.group_name)
        if route is None or input.ndim == 0:
            return self._operator._op_dk(self._torch_dispatch, input, output_sizes, input_sizes, group)
        output = input.new_empty((sum(output_sizes), *input.shape[1:]))
        route.all_to_all(input.contiguous(), list(input_sizes), out=output)
        return output
