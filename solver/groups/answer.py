"""A groups request answered as JSON-able values: what the command line and the server both call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.groups.order import ordered, runs
from solver.groups.partition import Partition, partition
from solver.groups.problem import Problem
from synth.errors import InputError
from synth.formats import nccl_settings, rank_files
from synth.topology import Routes, Topology

DEFAULT_BYTES = 64 * 2**20
MOST_COSTS = 512
"""Ranks up to which the cost matrix is computed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """The answer and the values behind it.

    Attributes:
        document: JSON-able.
        partition: groups and bounds.
        groups: device ids, in rank order.
    """

    document: dict[str, Any]
    partition: Partition
    groups: tuple[tuple[str, ...], ...]

    @property
    def rank_order(self) -> tuple[str, ...]:
        """Device of each rank, groups one after the other."""
        return tuple(gpu for group in self.groups for gpu in group)


def answer(
    topology: Topology,
    ep_size: int,
    *,
    ranks: Sequence[str] | None = None,
    bytes: int = DEFAULT_BYTES,
    background: np.ndarray | None = None,
    costs: bool = False,
) -> Answered:
    """Form groups, and say everything about them.

    Args:
        topology: the machine.
        ep_size: GPUs per group.
        ranks: GPUs that take part; default all.
        bytes: alltoall input of each rank.
        background: [gpus, gpus] bytes of other traffic at the same time.
        costs: also give the rank-to-rank cost matrix.

    Raises:
        InputError: sizes do not fit.
        Infeasible: no partition keeps every group connected; the message names a pair.
    """
    gpus = tuple(topology.gpus if ranks is None else ranks)
    if len(set(gpus)) != len(gpus):
        double = next(gpu for gpu in gpus if gpus.count(gpu) > 1)
        raise InputError(f"{double}: stands twice among the ranks; each GPU joins one group", subject=double)
    problem = Problem(topology=topology, gpus=gpus, size=ep_size, bytes=bytes, background=background)
    found = partition(problem)
    arranged = ordered(problem, found.groups)
    groups = tuple(tuple(gpus[gpu] for gpu in group) for group in arranged)
    order = tuple(gpu for group in groups for gpu in group)
    color = {gpu: number for number, group in enumerate(groups) for gpu in group}
    out = [gpu for gpu in gpus if gpu not in color]
    document: dict[str, Any] = {
        "groups": [list(group) for group in groups],
        "colors": [color.get(gpu, -1) for gpu in topology.gpus],
        "rank_order": list(order),
        "left_out": out,
        "predicted_seconds": found.seconds,
        "bound_seconds": found.bound,
        "baseline_seconds": {
            name: seconds if np.isfinite(seconds) else None for name, seconds in found.baselines.items()
        },
        "bytes": bytes,
        "termination": found.termination,
        "nvlink_runs": runs(problem, tuple(gpu for group in arranged for gpu in group)),
        "megatron": rank_files.megatron_groups(len(groups), ep_size),
        "settings": [
            {"name": setting.name, "value": setting.value, "reason": setting.reason}
            for setting in nccl_settings.settings(topology, groups)
        ],
        "warnings": _warnings(topology, groups, out, found.termination == "optimal"),
    }
    if costs:
        document["cost_us"] = cost_us(topology, order, bytes // ep_size)
    return Answered(document=document, partition=found, groups=groups)


def cost_us(topology: Topology, order: Sequence[str], bytes: int) -> list[list[float | None]]:
    """Microseconds of one send from rank to rank: the route's latency plus bytes over its slowest link.

    Where links were measured the figures are measured ones; null where there is no route.

    Raises:
        InputError: more than ``MOST_COSTS`` ranks.
    """
    if len(order) > MOST_COSTS:
        raise InputError(
            f"--costs: {len(order)} ranks are more than {MOST_COSTS}; name fewer with --ranks", subject="--costs"
        )
    routes = Routes.among(topology, order)
    pairs = np.arange(routes.ranks**2)
    rows, links = routes.incidence(pairs)
    slowest = np.full(routes.ranks**2, np.inf)
    np.minimum.at(slowest, rows, topology.bytes_per_s[links])
    micros = routes.latency_ns.ravel() / 1e3 + bytes / slowest * 1e6
    known = np.where(routes.exists.ravel() | np.eye(routes.ranks, dtype=bool).ravel(), np.round(micros, 4), np.nan)
    return [[None if np.isnan(cell) else cell for cell in row] for row in known.reshape(routes.ranks, -1).tolist()]


def _warnings(topology: Topology, groups: Sequence[Sequence[str]], out: Sequence[str], optimal: bool) -> list[str]:
    found = []
    if out:
        found.append(f"{len(out)} GPUs do not fill a group and stay out: {', '.join(out[:8])}")
    sizes: dict[str, int] = {}
    for gpu in topology.gpus:
        node = topology.device(gpu).node or topology.name
        sizes[node] = sizes.get(node, 0) + 1
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{node} {size}" for node, size in list(sizes.items())[:6])
        found.append(f"nodes have different numbers of GPUs ({told}); groups were not made alike")
    wider = [n for n, group in enumerate(groups) if len({topology.device(gpu).node for gpu in group}) > 1]
    if wider and not optimal and len(groups[0]) <= max(sizes.values()):
        found.append(f"{len(wider)} groups span nodes although a group of {len(groups[0])} would fit one")
    return found
