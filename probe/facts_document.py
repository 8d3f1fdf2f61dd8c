"""Facts as a document, ``synth-facts/1``: what one container saw of its machine, to be merged with the others'."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from probe.facts import Bridge, Bundle, Distance, Facts, Gpu, Nic, Path, PcieLink, Ports, Socket
from synth import documents
from synth.documents import Fields, Json
from synth.errors import CaptureError, DocumentError, LimitError
from synth.topology import Finding, Severity

FORMAT = "synth-facts/1"
MOST = 100_000


def to_document(facts: Facts) -> dict[str, Json]:
    """The facts as plain JSON values."""
    return {
        "format": FORMAT,
        "source": facts.source,
        "host": facts.host,
        "hidden": facts.hidden,
        "gpus": [asdict(gpu) for gpu in facts.gpus],
        "nics": [asdict(nic) for nic in facts.nics],
        "bridges": [asdict(bridge) for bridge in facts.bridges],
        "sockets": [asdict(socket) for socket in facts.sockets],
        "parents": dict(facts.parents),
        "paths": [[a, b, p.lanes, p.distance.name if p.distance else None] for (a, b), p in facts.paths.items()],
        "bundles": None if facts.bundles is None else [asdict(bundle) for bundle in facts.bundles],
        "ports": {name: asdict(ports) for name, ports in facts.ports.items()},
        "peers": [[a, b, status] for (a, b), status in facts.peers.items()],
        "fabric": {name: list(state) for name, state in facts.fabric.items()},
        "doubtful": sorted([a, b] for a, b in facts.doubtful),
        "origin": dict(facts.origin),
        "findings": [[f.code, f.severity.value, f.subject, f.message] for f in facts.findings],
    }


def from_document(document: Json, *, subject: str) -> Facts:
    """Read a facts document.

    Raises:
        CaptureError: it breaks the format or contradicts itself.
    """
    try:
        checked = Fields(document, f"{subject}#")
        checked.format(FORMAT)
        facts = _facts(document, checked)
    except (DocumentError, LimitError) as error:
        raise CaptureError(error.message, subject=subject) from None
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CaptureError(f"{subject}: is no {FORMAT} document ({error})", subject=subject) from None
    _check(facts, subject)
    return facts


def _facts(document: Json, checked: Fields) -> Facts:
    def rows(key: str) -> list[Json]:
        return checked.items(key, most=MOST)

    bundles = None if document.get("bundles") is None else tuple(Bundle(**row) for row in rows("bundles"))
    return Facts(
        source=checked.text("source"),
        host=checked.optional_text("host"),
        hidden=bool(document.get("hidden")),
        gpus=tuple(Gpu(**row | {"pcie": PcieLink(**row["pcie"])}) for row in rows("gpus")),
        nics=tuple(Nic(**row | {"pcie": PcieLink(**row["pcie"])}) for row in rows("nics")),
        bridges=tuple(Bridge(**row | {"pcie": PcieLink(**row["pcie"])}) for row in rows("bridges")),
        sockets=tuple(Socket(**row) for row in rows("sockets")),
        parents={str(name): str(parent) for name, parent in document["parents"].items()},
        paths={(a, b): _path(lanes, far) for a, b, lanes, far in rows("paths")},
        bundles=bundles,
        ports={
            name: Ports(**ports | {"up": tuple(ports["up"]), "down": tuple(ports["down"])})
            for name, ports in document["ports"].items()
        },
        peers={(a, b): str(status) for a, b, status in rows("peers")},
        fabric={name: (str(s), str(uuid), int(clique)) for name, (s, uuid, clique) in document["fabric"].items()},
        doubtful=frozenset((a, b) for a, b in rows("doubtful")),
        origin={str(fact): str(source) for fact, source in document["origin"].items()},
        findings=tuple(
            Finding(code=str(code), severity=Severity(severity), subject=str(about), message=str(message))
            for code, severity, about, message in rows("findings")
        ),
    )


def _path(lanes: Json, far: Json) -> Path:
    if type(lanes) is not int or not 0 <= lanes <= 1000:
        raise ValueError(f"{documents.shorten(lanes)} lanes")
    return Path(lanes, Distance[far] if far else None)


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "PcieLink": (PcieLink,),
    "tuple[int, ...]": (tuple,),
}


def _check_kinds(values: Iterable[Any], subject: str) -> None:
    """A dataclass takes anything; a document may hold anything."""
    for value in values:
        for field in fields(value):
            item = getattr(value, field.name)
            right = isinstance(item, _KINDS[str(field.type)]) and (isinstance(item, bool) == (field.type == "bool"))
            if not right or (isinstance(item, int | float) and not 0 <= item < 2**60):
                raise CaptureError(
                    f"{subject}: {type(value).__name__} has {field.name} {documents.shorten(item)}; "
                    f"must be {field.type}",
                    subject=subject,
                )
            if isinstance(item, PcieLink):
                _check_kinds([item], subject)


def _check(facts: Facts, subject: str) -> None:
    """Kinds must fit, names must be known, and the tree must be one, or later stages would stumble."""
    _check_kinds((*facts.devices, *facts.bridges, *facts.sockets, *(facts.bundles or ())), subject)
    _check_kinds(facts.ports.values(), subject)
    if len({device.name for device in facts.devices}) != len(facts.devices):
        raise CaptureError(f"{subject}: describes a device twice", subject=subject)
    strange = [bundle for bundle in facts.bundles or () if bundle.gpu not in {gpu.name for gpu in facts.gpus}]
    if strange or any(bundle.lanes < 1 or bundle.lane_bytes_per_s < 0 for bundle in facts.bundles or ()):
        raise CaptureError(f"{subject}: has NVLinks of no lanes or of a GPU it does not describe", subject=subject)
    devices = {device.name for device in facts.devices}
    inner = {bridge.name for bridge in facts.bridges}
    tops = {socket.name for socket in facts.sockets}
    named = {name for pair in (*facts.paths, *facts.peers) for name in pair} | set(facts.ports) | set(facts.fabric)
    unknown = named - devices | set(facts.parents) - devices - inner | set(facts.parents.values()) - inner - tops
    if unknown:
        raise CaptureError(f"{subject}: names {min(map(str, unknown))}, which it does not describe", subject=subject)
    for name in facts.parents:
        here, steps = name, 0
        while here in facts.parents and steps <= len(facts.parents):
            here, steps = facts.parents[here], steps + 1
        if here not in tops:
            raise CaptureError(f"{subject}: {name} hangs on no socket", subject=subject)


def dumps(facts: Facts) -> str:
    """The facts as canonical JSON text."""
    return documents.canonical(to_document(facts))
