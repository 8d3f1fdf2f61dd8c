"""What was read, beside the topology made of it: the cells of the matrix, and which source each fact is from."""

from __future__ import annotations

from probe.facts import Facts
from synth.documents import Json


def observed(facts: Facts, node: str) -> dict[str, Json]:
    """Facts by device id, for the document's ``observed`` key, which readers of topologies ignore.

    Returns:
        source; names (id -> the source's own name); paths (``id:id`` -> ``NV12``, ``PIX``, ... as read);
        peers (``id:id`` -> P2P status); ports (id -> active and inactive NVLinks); provenance (fact -> source).
    """
    ids = {gpu.name: f"{node}/gpu{number}" for number, gpu in enumerate(facts.gpus)}
    ids |= {nic.name: f"{node}/nic{number}" for number, nic in enumerate(facts.nics)}
    provenance = {}
    for fact, source in facts.origin.items():
        name, dot, field = fact.partition(".")
        provenance[f"{ids.get(name, name)}{dot}{field}"] = source
    return {
        "source": facts.source,
        "names": {id: name for name, id in ids.items()},
        "paths": {f"{ids[a]}:{ids[b]}": str(path) for (a, b), path in facts.paths.items()},
        "peers": {f"{ids[a]}:{ids[b]}": status for (a, b), status in facts.peers.items()},
        "ports": {ids[name]: {"active": len(p.up), "inactive": len(p.down)} for name, p in facts.ports.items()},
        "provenance": provenance,
    }
