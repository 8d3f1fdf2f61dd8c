"""What is to be placed, and a placement: which logical expert every slot of every rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.placement.eplb import counts
from synth.errors import InputError, LimitError

MOST = 16_384
"""Experts, slots and ranks are accepted up to this many."""
_FLAGS = {
    "experts": "experts",
    "slots": "--replicas",
    "ranks": "--ep-size",
    "nodes": "nodes",
    "groups": "--expert-groups",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the problem; everything divides evenly, as the published maps assume.

    Attributes:
        experts: logical experts of a layer.
        slots: physical experts of a layer in all (``--replicas``).
        ranks: of the expert-parallel group.
        nodes: machines, equally many ranks each, in rank order.
        groups: expert groups of consecutive experts; whole groups stay in one node where they divide by nodes.

    Raises:
        InputError: the numbers do not fit together.
    """

    experts: int
    slots: int
    ranks: int
    nodes: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        for name, flag in _FLAGS.items():
            count = getattr(self, name)
            if count < 1:
                raise InputError(f"{flag}: is {count}; must be at least 1", subject=flag)
            if count > MOST:
                raise LimitError(f"{flag}: is {count}; at most {MOST} are accepted", subject=flag)
        if self.slots < self.experts:
            raise InputError(
                f"--replicas: {self.slots} slots cannot hold {self.experts} experts; give at least {self.experts}",
                subject="--replicas",
            )
        if self.slots % self.ranks:
            near = -(-self.slots // self.ranks) * self.ranks
            raise InputError(
                f"--replicas: {self.slots} slots do not spread evenly over {self.ranks} ranks; {near} would",
                subject="--replicas",
            )
        if self.ranks % self.nodes:
            raise InputError(
                f"ranks: {self.ranks} do not spread evenly over {self.nodes} nodes; choose an --ep-size that does",
                subject="--ep-size",
            )
        if self.experts % self.groups:
            raise InputError(
                f"--expert-groups: {self.experts} experts do not fall into {self.groups} equal groups",
                subject="--expert-groups",
            )

    @property
    def grouped(self) -> bool:
        """Whether whole groups are kept inside nodes."""
        return self.groups > 1 and self.groups % self.nodes == 0

    @property
    def slots_per_rank(self) -> int:
        """Experts a rank holds."""
        return self.slots // self.ranks

    @property
    def ranks_per_node(self) -> int:
        """Ranks of a node."""
        return self.ranks // self.nodes


@dataclass(frozen=True, eq=False)
class Placement:
    """The maps of one model: EPLB's three, and what follows from them.

    Attributes:
        shape: sizes.
        phy2log: [layers, slots] the logical expert in each slot; rank r owns slots r * slots_per_rank onwards.
    """

    shape: Shape
    phy2log: np.ndarray

    @cached_property
    def logcnt(self) -> np.ndarray:
        """[layers, experts] copies of each expert."""
        return counts(self.phy2log, self.shape.experts)

    @cached_property
    def log2phy(self) -> np.ndarray:
        """[layers, experts, most copies] slots of each expert in ascending order, -1 where none."""
        layers, slots = self.phy2log.shape
        most = int(self.logcnt.max())
        order = np.argsort(self.phy2log, axis=1, kind="stable")
        owner = np.take_along_axis(self.phy2log, order, axis=1)
        begin = np.cumsum(self.logcnt, axis=1) - self.logcnt
        nth = np.arange(slots) - np.take_along_axis(begin, owner, axis=1)
        table = np.full((layers, self.shape.experts, most), -1, dtype=np.int64)
        table[np.arange(layers)[:, None], owner, nth] = order
        return table

    @cached_property
    def held(self) -> np.ndarray:
        """[layers, ranks, experts] how many copies of each expert each rank holds."""
        layers = self.phy2log.shape[0]
        per_rank = self.phy2log.reshape(layers * self.shape.ranks, self.shape.slots_per_rank)
        return counts(per_rank, self.shape.experts).reshape(layers, self.shape.ranks, self.shape.experts)

    @cached_property
    def split(self) -> np.ndarray:
        """[layers, experts, ranks] share of each expert's tokens that each rank serves (even over its copies)."""
        return np.swapaxes(self.held / self.logcnt[:, None, :], 1, 2)

    def rank_loads(self, loads: np.ndarray) -> np.ndarray:
        """[layers, ranks] load of each rank under these expert loads [layers, experts]."""
        share = np.take_along_axis(loads / self.logcnt, self.phy2log, axis=1)
        return np.asarray(share.reshape(len(share), self.shape.ranks, -1).sum(axis=2))

    def max_over_mean(self, loads: np.ndarray) -> np.ndarray:
        """[layers] highest rank load over the mean; 1 where a layer has no load."""
        rank = self.rank_loads(loads)
        mean = rank.mean(axis=1)
        return np.where(mean > 0, rank.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)


def check_placement(shape: Shape, phy2log: np.ndarray, layers: int | None = None) -> None:
    """Check that a map fits the shape and holds every expert.

    Raises:
        InputError: it does not; the message says where.
    """
    if phy2log.ndim != 2 or phy2log.shape[1] != shape.slots:
        raise InputError(
            f"--previous: phy2log is {' x '.join(map(str, phy2log.shape))}; must be layers x {shape.slots} slots",
            subject="--previous",
        )
    if (phy2log < 0).any() or (phy2log >= shape.experts).any():
        raise InputError(f"--previous: names an expert outside 0 to {shape.experts - 1}", subject="--previous")
    if layers is not None and len(phy2log) != layers:
        raise InputError(f"--previous: has {len(phy2log)} layers, the loads have {layers}", subject="--previous")
    missing = np.argwhere(counts(phy2log, shape.experts) == 0)
    if len(missing):
        layer, expert = missing[0]
        raise InputError(f"--previous: layer {layer} holds no copy of expert {expert}", subject="--previous")
