"""vLLM's expert parallelism on plans: its gathers and reduce-scatters with sizes go through a synth group.

With ``all2all_backend="allgather_reducescatter"`` (vLLM's default) the manager ``AgRsAll2AllManager`` dispatches tokens
by ``all_gatherv`` and combines them by ``reduce_scatterv`` of a group coordinator, which asks its device communicator.
Those methods of that one object are replaced; without a plan they do what they did before. Other backends (DeepEP,
FlashInfer, ...) move data by themselves.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from runtime.group import Group
from synth.errors import InvalidArgument, InvalidUsage

_NAMES = ("all_gatherv", "reduce_scatterv", "reduce_scatterv_into_output")


class Gatherer:
    """While this is in place, a group coordinator of vLLM uses a synth group; :meth:`remove` ends that.

    Args:
        group: a synth group with the same ranks in the same order.
        coordinator: vLLM's, such as ``vllm.distributed.get_ep_group()``.
        always: whether the synth group is used even where there is no plan.

    Raises:
        InvalidUsage: the coordinator has other ranks, or no device communicator.
    """

    def __init__(self, group: Group, coordinator: Any, *, always: bool = False) -> None:
        self._used: dict[str, bool] = dict.fromkeys(("allgather", "reduce_scatter"), True) if always else {}
        self._group, self._communicator = group, coordinator.device_communicator
        if self._communicator is None:
            raise InvalidUsage("interpose_vllm: this group of vLLM has no device communicator, so it moves no tokens")
        if (coordinator.rank_in_group, coordinator.world_size) != (group.rank, group.size):
            raise InvalidUsage(
                f"interpose_vllm: rank {coordinator.rank_in_group} of {coordinator.world_size} in vLLM's group is rank "
                f"{group.rank} of {group.size} in the synth group; make the one with "
                "synth.pytorch.attach(coordinator.device_group)"
            )
        self._own = {name: getattr(self._communicator, name) for name in _NAMES}
        for name in _NAMES:
            setattr(self._communicator, name, getattr(self, name))

    def remove(self) -> None:
        """Give vLLM its own methods back. Removing twice is allowed."""
        for name in _NAMES:
            vars(self._communicator).pop(name, None)

    def __enter__(self) -> Gatherer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.remove()

    def all_gatherv(self, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
        """Everybody's rows of one tensor, or of each of several."""
        if not self._plans("allgather"):
            return self._own["all_gatherv"](input_, dim, sizes)
        if isinstance(input_, list | tuple):
            return [self.all_gatherv(one, dim, sizes) for one in input_]
        _first_axis(dim, input_)
        return self._group.all_gather(input_.contiguous(), counts=_rows(sizes))

    def reduce_scatterv(self, input_: Any, dim: int = -1, sizes: list[int] | None = None) -> Any:
        """This rank's rows of the sum."""
        if not self._plans("reduce_scatter"):
            return self._own["reduce_scatterv"](input_, dim, sizes)
        _first_axis(dim, input_)
        return self._group.reduce_scatter(input_.contiguous(), counts=_rows(sizes))

    def reduce_scatterv_into_output(
        self, input_: Any, output: Any, dim: int = -1, sizes: list[int] | None = None
    ) -> Any:
        """The same, into a tensor that is there."""
        if not self._plans("reduce_scatter"):
            return self._own["reduce_scatterv_into_output"](input_, output, dim, sizes)
        output.copy_(self.reduce_scatterv(input_, dim, sizes))
        return output

    def _plans(self, collective: str) -> bool:
        """Whether the synth group is used; the first call looks for a plan, and all ranks find alike."""
        if collective not in self._used:
            self._used[collective] = self._group.prepare(collective).startswith("plan")
        return self._used[collective]


def _rows(sizes: list[int] | None) -> np.ndarray | None:
    return None if sizes is None else np.asarray([int(size) for size in sizes], dtype=np.int64)


def _first_axis(dim: int, tensor: Any) -> None:
    if dim not in (0, -tensor.ndim):
        raise InvalidArgument(f"dim: is {dim}; rows of the first axis are moved, so it must be 0", subject="dim")


def interpose_vllm(group: Group, coordinator: Any, *, always: bool = False) -> Gatherer:
    """Route a group coordinator's gathers and reduce-scatters through ``group``; see :class:`Gatherer`."""
    return Gatherer(group, coordinator, always=always)
