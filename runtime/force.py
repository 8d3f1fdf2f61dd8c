"""A trial that the script asks for: its outcome holds for every size of an operation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime.arrays import flat
from runtime.counts import even_rows
from runtime.schedules import Operation
from synth.collective import Collective
from synth.errors import InvalidArgument

if TYPE_CHECKING:
    from runtime.group import Group


def force_best(group: Group, operation: Operation, like: Any, repeat: int) -> dict[str, float]:
    """See :meth:`runtime.group.Group.trial`."""
    if operation.collective is Collective.SENDRECV:
        raise InvalidArgument("trial: sendrecv has nothing to choose from", subject=operation.name)
    schedules, communicator = group.schedules(operation), group.communicator
    seconds: dict[str, float] = {}
    for name in ("native", "direct") if schedules.plan is None else ("native", "direct", "plan"):
        schedules.forced = name
        mine = []
        for turn in range(repeat + 1):
            group.health_check()  # ranks start together
            began = time.perf_counter()
            _once(group, operation, like)
            communicator.synchronize()
            if turn:
                mine.append(time.perf_counter() - began)
        all_ranks = communicator.gather(np.array([np.median(mine)]).tobytes())
        seconds[name] = max(float(np.frombuffer(one)[0]) for one in all_ranks)
    best = min(seconds, key=lambda name: seconds[name])  # native first: a tie keeps the library's own
    schedules.forced = best
    said = ", ".join(f"{name} {value * 1e6:.0f} us" for name, value in seconds.items())
    group.stats().reasons[operation.name] += f"; trial: {said}; {best} is used"
    return seconds


def _once(group: Group, operation: Operation, like: Any) -> None:
    root = operation.root or 0
    match operation.collective:
        case Collective.ALLTOALL:
            rows = even_rows(flat(like).rows, group.size, "like")
            group.all_to_all(like, counts=np.tile(rows, (group.size, 1)))
        case Collective.ALLGATHER:
            group.all_gather(like)
        case Collective.REDUCE_SCATTER:
            group.reduce_scatter(like)
        case Collective.ALLREDUCE:
            group.all_reduce(like)
        case Collective.BROADCAST:
            group.broadcast(like, root=root)
        case _:
            group.reduce(like, root=root)
