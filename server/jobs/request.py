"""What a job is asked to solve, and the digests by which equal requests are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from synth import documents
from synth.collective import Demand, matrix_to_document, parse_collective
from synth.documents import Json
from synth.simulator import LAUNCH_NS


@dataclass(frozen=True, kw_only=True)
class SolveRequest:
    """One request for a plan, complete: no default is left open, so equal requests are equal values.

    Attributes:
        topology: digest of the topology document.
        fingerprint: of that topology.
        places: canonical place of each rank's device.
        collective: name.
        ranks: device id of each rank.
        bytes: size to make the plan for.
        min_bytes: smallest size it shall answer.
        max_bytes: largest size it shall answer.
        root: for broadcast and reduce.
        pairs: for sendrecv.
        demand: rows of bytes per pair, for an uneven alltoall.
        cost: rounds or timeline.
        launch_ns: cost of starting one round.
        time_limit: seconds the solver may take.
        seed: of the solver.
        strategies: names of those to try; None for all.
        exact: {objective, rounds, chunks} of an exact schedule; None where none was asked for.
        book: whether a few plans are wanted that share the range.
    """

    topology: str
    fingerprint: str
    places: tuple[int, ...]
    collective: str
    ranks: tuple[str, ...]
    bytes: int
    min_bytes: int
    max_bytes: int
    root: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    demand: tuple[tuple[float, ...], ...] | None = None
    cost: str = "rounds"
    launch_ns: float = LAUNCH_NS
    time_limit: float = 10.0
    seed: int = 0
    strategies: tuple[str, ...] | None = None
    exact: dict[str, Json] | None = None
    book: bool = False

    @classmethod
    def from_document(cls, document: Mapping[str, Json]) -> SolveRequest:
        """Read what :meth:`to_document` wrote."""
        values = dict(document)
        for name in ("places", "ranks"):
            values[name] = tuple(values[name])
        for name in ("pairs", "demand"):
            values[name] = None if values[name] is None else tuple(map(tuple, values[name]))
        if values.get("strategies") is not None:
            values["strategies"] = tuple(values["strategies"])
        return cls(**values)

    def to_document(self) -> dict[str, Json]:
        """As plain JSON values, for the job's row and the child process.

        Later additions stand there only where they say anything, so that old requests keep their digests.
        """
        return _without(asdict(self), *(name for name in ("strategies", "exact", "book") if not getattr(self, name)))

    def to_demand(self) -> Demand:
        """The demand it describes.

        Raises:
            DemandError: its parts do not fit together.
        """
        return Demand(
            collective=parse_collective(self.collective),
            ranks=len(self.ranks),
            bytes=self.bytes,
            root=self.root,
            pairs=self.pairs,
            matrix=None if self.demand is None else np.array(self.demand, dtype=np.float64),
        )

    @cached_property
    def key(self) -> str:
        """Digest of the whole request: equal requests share one job and one plan."""
        return documents.digest(_without(self.to_document(), "fingerprint", "places"))

    def page_key(self, page: int) -> str:
        """Digest of the request for one plan of a book; the first goes by the request's own."""
        return self.key if page == 0 else documents.digest({"book": self.key, "page": page})

    @cached_property
    def shape(self) -> str:
        """Digest of the request with devices replaced by their canonical places: equal for equal machines."""
        return documents.digest(_without(self.to_document(), "topology", "ranks"))

    @cached_property
    def subject(self) -> str:
        """Digest of what the plan is about, without sizes and solver options: what resolve looks for."""
        return self.subject_on(self.topology)

    def subject_on(self, topology: str) -> str:
        """What :attr:`subject` would be on another topology, of that digest."""
        return subject(
            topology=topology,
            collective=self.collective,
            ranks=self.ranks,
            root=self.root,
            pairs=self.pairs,
            demand=None if self.demand is None else documents.digest(matrix_to_document(self.demand)),
        )


def subject(
    *,
    topology: str,
    collective: str,
    ranks: tuple[str, ...],
    root: int | None,
    pairs: tuple[tuple[int, int], ...],
    demand: str | None,
) -> str:
    """Digest of what a plan is about; ``demand`` is the digest of the ``{"bytes": [[..]]}`` document."""
    return documents.digest(
        {
            "topology": topology,
            "collective": collective,
            "ranks": ranks,
            "root": root,
            "pairs": pairs,
            "demand": demand,
        }
    )


def _without(document: dict[str, Json], *names: str) -> dict[str, Json]:
    return {name: value for name, value in document.items() if name not in names}
