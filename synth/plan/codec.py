"""The plan document, ``synth-plan/1``: reading and writing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from synth import documents
from synth.collective import matrix_from_document, matrix_to_document, parse_collective
from synth.documents import Fields, Json
from synth.errors import PlanError
from synth.plan.ir import Certificate, Chunks, Plan, Predicted, Symmetry, Transfers

FORMAT = "synth-plan/1"
MAX_RANKS = 65_536
MAX_SEGMENTS = 2**20
MAX_ROUND = 2**31


def to_document(plan: Plan) -> dict[str, Json]:
    """The plan as plain JSON values."""
    document: dict[str, Json] = {
        "format": FORMAT,
        "collective": plan.collective.value,
        "ranks": list(plan.ranks),
        "topology": plan.topology,
        "bytes": {"min": plan.min_bytes, "max": plan.max_bytes},
        "segments": plan.segments,
        "denominator": plan.denominator,
        "chunks": columns_to_document(plan.chunks),
        "transfers": columns_to_document(plan.transfers),
        "solver": dict(plan.solver),
    }
    if plan.root is not None:
        document["root"] = plan.root
    if plan.helpers:
        document["helpers"] = plan.helpers
    if plan.certificate is not None:
        document["certificate"] = certificate_to_document(plan.certificate)
    if plan.predicted is not None:
        document["predicted"] = {"bytes": list(plan.predicted.bytes), "seconds": list(plan.predicted.seconds)}
    if plan.demand is not None:
        document["demand"] = matrix_to_document(plan.demand)
    if plan.symmetry is not None:
        document["symmetry"] = symmetry_to_document(plan.symmetry)
    return document


def symmetry_to_document(symmetry: Symmetry) -> dict[str, Json]:
    """The symmetries as plain JSON values."""
    return {"generators": [list(image) for image in symmetry.generators], "order": symmetry.order}


def columns_to_document(columns: Chunks | Transfers) -> dict[str, list[int]]:
    """Columns as a JSON object of integer arrays."""
    return {name: getattr(columns, name).tolist() for name in columns.__slots__}


def certificate_to_document(certificate: Certificate) -> dict[str, Json]:
    """The certificate as plain JSON values."""
    document: dict[str, Json] = {"kind": certificate.kind, "bound_ns": certificate.bound_ns}
    if certificate.lengths is not None:
        document["lengths"] = certificate.lengths.tolist()
    if certificate.devices:
        document["devices"] = list(certificate.devices)
    if certificate.latency_bound_ns is not None:
        document["latency_bound_ns"] = certificate.latency_bound_ns
    return document


def from_document(document: Json, *, subject: str = "plan") -> Plan:
    """Read a plan document; its rules are checked by :mod:`synth.verifier`, not here.

    Raises:
        DocumentError: it breaks the format; the message holds the pointer.
        PlanError: columns or ranks contradict each other.
    """
    fields = Fields(document, f"{subject}#")
    fields.format(FORMAT)
    collective = parse_collective(fields.text("collective"))
    ranks = ranks_from_document(fields)
    helpers = fields.integer("helpers", most=len(ranks) - 1) if fields.value.get("helpers") is not None else 0
    root = fields.integer("root", most=len(ranks) - helpers - 1) if fields.value.get("root") is not None else None
    if collective.rooted and root is None:
        raise fields.error("root", f"is missing; {collective.value} needs one")
    sizes = fields.object("bytes")
    chunks = chunks_from_document(fields.object("chunks"), len(ranks))
    return Plan(
        collective=collective,
        root=root,
        ranks=ranks,
        helpers=helpers,
        topology=fields.text("topology"),
        min_bytes=sizes.integer("min"),
        max_bytes=sizes.integer("max"),
        segments=fields.integer("segments", least=1, most=MAX_SEGMENTS),
        denominator=fields.integer("denominator", least=1, most=2**53),
        chunks=chunks,
        transfers=transfers_from_document(fields.object("transfers"), len(ranks), len(chunks)),
        certificate=certificate_from_document(fields) if fields.value.get("certificate") is not None else None,
        predicted=_predicted(fields) if fields.value.get("predicted") is not None else None,
        demand=_demand(fields, len(ranks) - helpers) if fields.value.get("demand") is not None else None,
        symmetry=symmetry_from_document(fields, len(ranks)) if fields.value.get("symmetry") is not None else None,
        solver=fields.object("solver").value if "solver" in fields.value else {},
    )


def ranks_from_document(fields: Fields) -> tuple[str, ...]:
    """Read the device id of each rank."""
    ranks = fields.items("ranks", most=MAX_RANKS)
    if not ranks or not all(isinstance(rank, str) for rank in ranks):
        raise fields.error("ranks", "must be an array of device ids, at least one")
    if len(set(ranks)) != len(ranks):
        raise fields.error("ranks", "names a device twice; each rank needs its own")
    return tuple(ranks)


def chunks_from_document(fields: Fields, ranks: int) -> Chunks:
    """Read chunk columns; origins and targets are ranks or -1."""
    return Chunks(
        *_columns(
            fields,
            {"origin": (-1, ranks - 1), "target": (-1, ranks - 1), "share": (0, 2**53)},
        )
    )


def transfers_from_document(fields: Fields, ranks: int, chunks: int) -> Transfers:
    """Read transfer columns; chunk, src and dst are positions that exist."""
    return Transfers(
        *_columns(
            fields,
            {
                "chunk": (0, chunks - 1),
                "src": (0, ranks - 1),
                "dst": (0, ranks - 1),
                "round": (0, MAX_ROUND),
                "reduce": (0, 1),
            },
        )
    )


def _columns(fields: Fields, bounds: dict[str, tuple[int, int]]) -> list[np.ndarray]:
    columns = [
        np.array(fields.integers(name, least=least, most=most), dtype=np.int64)
        for name, (least, most) in bounds.items()
    ]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{name} {len(column)}" for name, column in zip(bounds, columns, strict=True))
        raise PlanError(f"{fields.where}: columns differ in length ({sizes}); they must be equal", subject=fields.where)
    return columns


def certificate_from_document(fields: Fields) -> Certificate:
    """Read the certificate of a document."""
    inner = fields.object("certificate")
    kind = inner.text("kind")
    latency = inner.number("latency_bound_ns") if inner.value.get("latency_bound_ns") is not None else None
    bound = inner.number("bound_ns")
    if kind == "lengths":
        items = inner.items("lengths")
        for position, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < 1e300:
                raise inner.error(f"lengths/{position}", "must be a finite number of at least 0")
        return Certificate(kind, bound, lengths=np.array(items, dtype=np.float64), latency_bound_ns=latency)
    if kind == "cut":
        devices = inner.items("devices")
        if not all(isinstance(device, str) for device in devices):
            raise inner.error("devices", "must be an array of device ids")
        return Certificate(kind, bound, devices=tuple(devices), latency_bound_ns=latency)
    raise inner.error("kind", f"is {documents.shorten(kind)}; must be lengths or cut")


def _predicted(fields: Fields) -> Predicted:
    inner = fields.object("predicted")
    seconds = inner.items("seconds")
    if not all(isinstance(s, int | float) and not isinstance(s, bool) and 0 <= s < 1e300 for s in seconds):
        raise inner.error("seconds", "must be an array of times of at least 0")
    sizes = inner.integers("bytes")
    if len(sizes) != len(seconds):
        raise inner.error("seconds", f"has {len(seconds)} times for {len(sizes)} sizes")
    return Predicted(tuple(sizes), tuple(map(float, seconds)))


def _demand(fields: Fields, members: int) -> np.ndarray:
    matrix = matrix_from_document(fields.value["demand"], subject=f"{fields.where}/demand")
    if len(matrix) != members:
        raise fields.error("demand", f"has {len(matrix)} rows; must have one per rank with data, {members}")
    return matrix


def symmetry_from_document(fields: Fields, ranks: int) -> Symmetry:
    """Read the symmetries of a document."""
    inner = fields.object("symmetry")
    generators = inner.items("generators", most=64)
    for position, image in enumerate(generators):
        if not isinstance(image, list) or any(type(rank) is not int for rank in image):
            raise inner.error(f"generators/{position}", "must be an array of ranks")
        if sorted(image) != list(range(ranks)):
            raise inner.error(f"generators/{position}", f"must be a permutation of the ranks 0 to {ranks - 1}")
    return Symmetry(tuple(map(tuple, generators)), inner.integer("order", least=1, most=ranks))


def dumps(plan: Plan) -> str:
    """The plan as canonical JSON text."""
    return documents.canonical(to_document(plan))


def load(path: str | Path) -> Plan:
    """Read a plan file; errors as :func:`from_document` and :func:`synth.documents.read`."""
    return from_document(documents.read(path), subject=str(path))


def save(plan: Plan, path: str | Path) -> None:
    """Write a plan file, whole or not at all."""
    documents.write(path, plan.text + "\n")
