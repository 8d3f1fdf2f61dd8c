"""``ibnetdiscover``: which port of which host hangs on which switch, and how switches are joined."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from probe.network.model import Network

_RATES = {
    "SDR": 2.5e9, "DDR": 5e9, "QDR": 10e9, "FDR": 14e9, "EDR": 25e9, "HDR": 50e9, "NDR": 100e9, "XDR": 200e9,
}  # fmt: skip
"""Bits per second of one lane, by the name the tool prints."""

_OWNER = re.compile(r'(Switch|Ca)\s+[0-9]+\s+"([SH]-[0-9a-fA-F]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(r'\[([0-9]+)\](?:\([0-9a-fA-F]+\))?\s+"([SH]-[0-9a-fA-F]+)"\[[0-9]+\].*?#\s*"([^"]*)"(.*)')
_WIDTH = re.compile(r"([0-9]{1,2})x([SDQFEHNX]DR)\b")


@dataclass(slots=True)
class Fabric:
    """What the tool saw.

    Attributes:
        switches: id -> description.
        adapters: id -> description, of channel adapters (hosts and aggregation nodes).
        ports: (switch, adapter) -> bits per second.
        cables: (switch, switch) -> bits per second of all cables, as seen from the first.
    """

    switches: dict[str, str] = field(default_factory=dict)
    adapters: dict[str, str] = field(default_factory=dict)
    ports: dict[tuple[str, str], float] = field(default_factory=dict)
    cables: Counter[tuple[str, str]] = field(default_factory=Counter)


def read_fabric(text: str) -> Fabric:
    """The fabric; empty where nothing is joined to anything."""
    fabric = Fabric()
    switch: str | None = None
    for line in text.splitlines():
        if owner := _OWNER.match(line.strip()):
            kind, id, description = owner[1], owner[2], owner[3]
            switch = id if kind == "Switch" else None
            (fabric.switches if kind == "Switch" else fabric.adapters).setdefault(id, description)
        elif switch is not None and (port := _PORT.match(line.strip())):
            width = _WIDTH.search(port[4])
            rate = int(width[1]) * _RATES.get(width[2], 0.0) if width else 0.0
            if port[2].startswith("S"):
                fabric.switches.setdefault(port[2], port[3])
                fabric.cables[switch, port[2]] += int(rate)
            else:
                fabric.adapters.setdefault(port[2], port[3])
                fabric.ports[switch, port[2]] = rate
    return fabric


def read(text: str, *, subject: str) -> Network:
    """The network: leaves by host port; all switches above them count as one spine, as with adaptive routing.

    Args:
        text: what ``ibnetdiscover`` printed.
        subject: its name, for messages.
    """
    fabric = read_fabric(text)
    leaves: dict[str, str] = {}
    ports: dict[tuple[str, str], str] = {}
    below: set[str] = set()
    slowest = 0.0
    for (switch, adapter), rate in fabric.ports.items():
        host, _, device = fabric.adapters[adapter].partition(" ")
        if "Aggregation Node" in fabric.adapters[adapter]:
            continue
        below.add(switch)
        name = _name(fabric, switch)
        leaves.setdefault(host, name)
        if re.fullmatch(r"\w+_\d+", device):
            ports[host, device] = name
        slowest = rate / 8 if not slowest else min(slowest, rate / 8)
    uplinks: Counter[str] = Counter()
    for (one, other), rate in fabric.cables.items():
        if one in below and other not in below:
            uplinks[_name(fabric, one)] += rate
    return Network(
        source="ibnetdiscover",
        leaves=leaves,
        ports=ports,
        parents=dict.fromkeys(uplinks, "spine"),
        uplinks={name: rate / 8 for name, rate in uplinks.items()},
        bytes_per_s=slowest,
    )


def _name(fabric: Fabric, switch: str) -> str:
    """A switch's readable name: ``sw1`` of ``MF0;sw1:MQM9701/U1``, with its id's end, which is unique."""
    match = re.match(r"\w+;([^:;]+)", fabric.switches.get(switch, ""))
    return f"{match[1]}-{switch[-4:]}" if match else switch
