"""What a training job asks for: one collective among its ranks at one size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synth import documents
from synth.collective import Demand, matrix_to_document, parse_collective
from synth.errors import DemandError
from synth.plan import Plan
from synth.topology import Topology


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRequest:
    """A question that a plan answers.

    Attributes:
        topology: the machine as this job sees it; its ids name the ranks.
        collective: name.
        bytes: size, as the collective defines it.
        ranks: device id of each rank; empty for every GPU in the document's order.
        root: for broadcast and reduce.
        pairs: for sendrecv, (from, to).
        demand: [ranks, ranks] bytes per pair, for an uneven alltoall.

    Raises:
        DemandError: the parts do not fit together, or a rank is no GPU of the topology.
    """

    topology: Topology
    collective: str
    bytes: int
    ranks: tuple[str, ...] = ()
    root: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    demand: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not self.ranks:
            object.__setattr__(self, "ranks", self.topology.gpus)
        gpus = set(self.topology.gpus)
        for rank in self.ranks:
            if rank not in gpus:
                raise DemandError(f"ranks: {rank} is no GPU of topology {self.topology.name}", subject=rank)
        self.to_demand()

    def to_demand(self) -> Demand:
        """The demand it describes."""
        return Demand(
            collective=parse_collective(self.collective),
            ranks=len(self.ranks),
            bytes=self.bytes,
            root=self.root,
            pairs=self.pairs,
            matrix=self.demand,
        )

    @cached_property
    def topology_digest(self) -> str:
        """Digest of the topology document: what the server knows it by."""
        return documents.digest(self.topology_document)

    @cached_property
    def topology_document(self) -> documents.Json:
        """The topology document."""
        from synth import topology

        return topology.to_document(self.topology)

    @cached_property
    def demand_digest(self) -> str | None:
        """Digest of the demand document, where there is a demand."""
        return None if self.demand is None else documents.digest(matrix_to_document(self.demand))

    @cached_property
    def key(self) -> str:
        """Digest of the whole question: what the cache knows its answer by."""
        return documents.digest(
            {
                "topology": self.topology.fingerprint,
                "collective": self.collective,
                "ranks": self.ranks,
                "bytes": self.bytes,
                "root": self.root,
                "pairs": self.pairs,
                "demand": self.demand_digest,
            }
        )

    def misfit(self, plan: Plan) -> str | None:
        """Why a plan does not answer this question, or None when it does."""
        if plan.collective.value != self.collective:
            return f"it is for {plan.collective.value}, not {self.collective}"
        if plan.topology != self.topology.fingerprint:
            return f"it is for topology {plan.topology[:12]}, not {self.topology.fingerprint[:12]}"
        if plan.ranks[: plan.members] != self.ranks:
            return f"it is for {plan.members} ranks on other devices than these {len(self.ranks)}"
        if plan.root != self.root:
            return f"its root is {plan.root}, not {self.root}"
        if not plan.min_bytes <= self.bytes <= plan.max_bytes:
            return f"it was chosen for {plan.min_bytes} to {plan.max_bytes} bytes, not {self.bytes}"
        return None
