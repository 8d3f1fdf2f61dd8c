"""An expanded plan laid over a topology: the columns both cost models work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.collective import Demand
from synth.errors import InvalidPlan
from synth.plan import Plan, expand
from synth.plan.sizes import chunk_bytes
from synth.topology import Routes, Topology


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """An expanded plan laid over a topology: the columns both cost models work on.

    Attributes:
        plan: expanded.
        routes: among its ranks.
        segment_bytes: [transfers] bytes of one segment.
        pair: [transfers] row of each transfer's route.
    """

    plan: Plan
    routes: Routes
    segment_bytes: np.ndarray
    pair: np.ndarray

    @classmethod
    def of(cls, plan: Plan, topology: Topology, demand: Demand, routes: Routes | None = None) -> Loads:
        """Expand the plan and look up its routes.

        Raises:
            InvalidPlan: a transfer has no route on this topology.
        """
        whole = expand(plan)
        routes = routes or Routes.among(topology, whole.ranks)
        transfers = whole.transfers
        pair = transfers.src * len(whole.ranks) + transfers.dst
        missing = np.flatnonzero(~routes.exists.ravel()[pair])
        if len(missing):
            src, dst = (whole.ranks[column[missing[0]]] for column in (transfers.src, transfers.dst))
            raise InvalidPlan(
                f"plan: {src} sends to {dst}, but topology {topology.name} has no route between them",
                subject=f"{src}:{dst}",
            )
        sizes = chunk_bytes(whole, demand)[transfers.chunk] / whole.segments
        return cls(whole, routes, sizes, pair)

    def link_seconds(self) -> np.ndarray:
        """[links] time each link is busy in the whole plan."""
        rows, links = self.routes.incidence(self.pair)
        topology = self.routes.topology
        carried = np.bincount(links, self.segment_bytes[rows], minlength=len(topology.links)) * self.plan.segments
        return carried / topology.bytes_per_s if len(topology.links) else carried
