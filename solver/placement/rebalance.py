"""Rebalancing from Python, every few hundred steps: the signature serving systems know, and one that remembers.

``rebalance_experts`` takes what EPLB's function takes (numpy arrays, or CPU tensors) and gives its three maps, so it
drops into a system's balancing policy. :class:`Rebalancer` also keeps the placement in force, so that few experts move
and small gains move none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.placement.migration import Step, migration
from solver.placement.place import MIN_GAIN, SLACK, Placed, place
from solver.placement.problem import Placement, Shape
from solver.placement.traffic import Traffic
from synth.topology import Routes


def rebalance_experts(
    weight: Any, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place experts as EPLB's function of this name does, with lower highest rank loads.

    Args:
        weight: [layers, experts] load of each logical expert.
        num_replicas: physical experts in all, a multiple of ``num_gpus``.
        num_groups: expert groups; kept inside nodes where they divide by nodes.
        num_nodes: machines.
        num_gpus: ranks.

    Returns:
        (phy2log [layers, replicas], log2phy [layers, experts, most copies] with -1 where none, logcnt
        [layers, experts]).

    Raises:
        InputError: the numbers do not fit together.
    """
    loads = np.asarray(weight)
    shape = Shape(
        experts=loads.shape[-1], slots=num_replicas, ranks=num_gpus, nodes=num_nodes, groups=max(num_groups, 1)
    )
    placement = place(loads, shape).placement
    return placement.phy2log, placement.log2phy, placement.logcnt


class Rebalancer:
    """A placement in force and how to change it.

    Args:
        shape: sizes; they stay.
        routes: among the ranks in order, for migration plans; None: maps only.
        slack: loads this close count as equal.
        min_gain: smaller gains change nothing.

    Attributes:
        placement: in force; None before the first call.
    """

    def __init__(
        self, shape: Shape, routes: Routes | None = None, *, slack: float = SLACK, min_gain: float = MIN_GAIN
    ) -> None:
        self.shape = shape
        self.placement: Placement | None = None
        self._routes = routes
        self._slack = slack
        self._min_gain = min_gain

    def update(self, loads: Any, traffic: Traffic | None = None) -> tuple[Placed, list[Step]]:
        """Place for these loads and take the result as the placement in force.

        Args:
            loads: [layers, experts] since the last call.
            traffic: co-activation and sources, where known.

        Returns:
            (the placement, the migration's steps in order; none on the first call, without routes, or where every
            layer keeps what it has).
        """
        before = self.placement
        placed = place(
            np.asarray(loads),
            self.shape,
            traffic=traffic,
            previous=None if before is None else before.phy2log,
            slack=self._slack,
            min_gain=self._min_gain,
        )
        self.placement = placed.placement
        if before is None or self._routes is None:
            return placed, []
        return placed, migration(before, placed.placement, self._routes)
