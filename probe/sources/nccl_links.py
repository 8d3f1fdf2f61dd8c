"""NVLink and xGMI entries of an NCCL topology XML: to which peer each leads, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe.facts import SWITCHED, Bundle, Gpu
from probe.findings import finding
from probe.sources.pci import bus_id, integer
from probe.sources.xml_tree import Element
from synth.topology import Finding
from synth.topology.model import abridge

_SENTINEL = re.compile(r"f{7,8}:ff:ff\.[0-9a-f]")

Entry = tuple[str, Element, str]
"""Name of the GPU, the element, name of the GPU's socket."""


def resolve(links: Sequence[Entry], gpus: Sequence[Gpu]) -> tuple[list[Bundle], list[Finding]]:
    """Bundles of all entries, and findings about entries that cannot be as they stand."""
    resolver = _Resolver(gpus)
    return resolver.bundles(links), resolver.findings


class _Resolver:
    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        self.findings: list[Finding] = []

    def note(self, code: str, subject: str, message: str) -> None:
        self.findings.append(finding(code, subject, message))

    def bundles(self, links: Sequence[Entry]) -> list[Bundle]:
        """See :func:`resolve`."""
        by_bus = {gpu.pci: gpu.name for gpu in self.gpus}
        chips: list[Bundle] = []
        lanes: dict[tuple[str, str], int] = {}
        rate: dict[tuple[str, str], float] = {}
        hidden: list[str] = []
        for gpu, link, socket in links:
            if link.tag == "c2c":
                chips += _chip(gpu, socket, link)
                continue
            if not link.attributes.get("target"):
                continue
            target = link.attributes.get("target", "")
            count = integer(link.attributes.get("count")) or (1 if "count" not in link.attributes else 0)
            peer = self._peer(gpu, link, target, by_bus, socket, hidden)
            if peer is not None and count > 0:
                lanes[gpu, peer] = lanes.get((gpu, peer), 0) + count
                if (bandwidth := integer(link.attributes.get("bw"))) is not None:
                    rate[gpu, peer] = bandwidth * 1e9
        if hidden:
            self.note(
                "fabric-remote-unknown",
                hidden[0],
                f"NVLinks of {abridge(list(dict.fromkeys(hidden)))} report an all-ones target: a switch that is not "
                "visible here, not one more NVLink domain",
            )
        self._both_ways(lanes)
        self._siblings(lanes)
        return chips + [
            Bundle(gpu=gpu, peer=peer, lanes=count, lane_bytes_per_s=rate.get((gpu, peer), 0.0))
            for (gpu, peer), count in lanes.items()
        ]

    def _peer(
        self, gpu: str, link: Element, target: str, by_bus: dict[str | None, str], socket: str, hidden: list[str]
    ) -> str | None:
        if _SENTINEL.fullmatch(target.lower()):
            hidden.append(gpu)
            return SWITCHED
        if re.fullmatch(r"[0-9]{1,4}", target) and f"GPU{int(target)}" in set(by_bus.values()):
            peer: str | None = f"GPU{int(target)}"
        else:
            peer = by_bus.get(bus_id(target))
        if peer == gpu:
            self.note(
                "self-link",
                gpu,
                f"line {link.line}: an NVLink of {gpu} ends at {target}, which is {gpu} itself; it is not counted",
            )
            return None
        if peer is not None:
            return peer
        kind = link.attributes.get("tclass", "").lower()
        if kind == "0x068001":
            return socket  # NVLink to a Power9 socket
        if kind != "0x068000":
            self.note(
                "target-unknown",
                gpu,
                f"line {link.line}: an NVLink of {gpu} ends at {target or 'nothing'}, which the file does not hold; "
                "taken as an invisible switch",
            )
        return SWITCHED

    def _both_ways(self, lanes: dict[tuple[str, str], int]) -> None:
        names = {gpu.name for gpu in self.gpus}
        for (gpu, peer), count in list(lanes.items()):
            back = lanes.get((peer, gpu))
            if peer in names and back is None:
                lanes[peer, gpu] = count
                self.note("one-way-link", gpu, f"the NVLink {gpu} to {peer} is listed at {gpu} only; taken both ways")

    def _siblings(self, lanes: dict[tuple[str, str], int]) -> None:
        """A GPU with another number of lanes into the switch than all its siblings stands out."""
        counts = {gpu: count for (gpu, peer), count in lanes.items() if peer == SWITCHED}
        if len(counts) < 3:
            return
        usual = max(set(counts.values()), key=list(counts.values()).count)
        for gpu, count in counts.items():
            if count < usual:
                text = f"{gpu} has {count} NVLinks into the switch, its siblings have {usual}"
                self.note("nvlink-fewer", gpu, text)


def _chip(gpu: str, socket: str, link: Element) -> list[Bundle]:
    """A chip-to-chip link to the socket; NCCL writes megabytes per second."""
    bandwidth, count = integer(link.attributes.get("bw")) or 0, integer(link.attributes.get("count")) or 1
    if bandwidth <= 0 or count <= 0:
        return []
    return [Bundle(gpu=gpu, peer=socket, lanes=count, lane_bytes_per_s=bandwidth * 1e6, chip=True)]
