"""A bound by itself: what is claimed of which demand, with its proof; ``synth bound`` writes it."""

from __future__ import annotations

from dataclasses import dataclass

from synth.collective import Demand, matrix_from_document, matrix_to_document, parse_collective
from synth.documents import Fields, Json
from synth.plan.codec import (
    certificate_from_document,
    certificate_to_document,
    ranks_from_document,
    symmetry_from_document,
    symmetry_to_document,
)
from synth.plan.ir import Certificate, Symmetry


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """No schedule of a demand among some ranks takes less than the certificate states.

    Attributes:
        ranks: device id of each rank; those beyond ``demand.ranks`` only relay.
        demand: what must be delivered.
        certificate: the bound and its lengths.
        symmetry: of the machine and the demand; the bound may be recomputed by its orbits, and of a large machine in no
            other way.
    """

    ranks: tuple[str, ...]
    demand: Demand
    certificate: Certificate
    symmetry: Symmetry | None = None

    def to_document(self) -> dict[str, Json]:
        """As plain JSON values."""
        demand = self.demand
        document: dict[str, Json] = {
            "collective": demand.collective.value,
            "ranks": list(self.ranks),
            "helpers": len(self.ranks) - demand.ranks,
            "bytes": demand.bytes,
            "certificate": certificate_to_document(self.certificate),
        }
        if demand.root is not None:
            document["root"] = demand.root
        if demand.pairs:
            document["pairs"] = [list(pair) for pair in demand.pairs]
        if demand.matrix is not None:
            document["demand"] = matrix_to_document(demand.matrix)
        if self.symmetry is not None:
            document["symmetry"] = symmetry_to_document(self.symmetry)
        return document

    @classmethod
    def from_document(cls, document: Json, *, subject: str) -> Claim:
        """Read what :meth:`to_document` made; other keys are ignored.

        Raises:
            DocumentError: it breaks the format.
            DemandError: the parts of the demand do not fit together.
        """
        fields = Fields(document, f"{subject}#")
        ranks = ranks_from_document(fields)
        given = {key for key, value in fields.value.items() if value is not None}
        pairs = fields.items("pairs") if "pairs" in given else []
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or any(type(rank) is not int for rank in pair):
                raise fields.error("pairs", "must be an array of pairs of ranks")
        return cls(
            ranks=ranks,
            demand=Demand(
                collective=parse_collective(fields.text("collective")),
                ranks=len(ranks) - (fields.integer("helpers", most=len(ranks) - 1) if "helpers" in given else 0),
                bytes=fields.integer("bytes"),
                matrix=matrix_from_document(fields.value["demand"], subject=subject) if "demand" in given else None,
                root=fields.integer("root") if "root" in given else None,
                pairs=tuple(map(tuple, pairs)),
            ),
            certificate=certificate_from_document(fields),
            symmetry=symmetry_from_document(fields, len(ranks)) if "symmetry" in given else None,
        )
