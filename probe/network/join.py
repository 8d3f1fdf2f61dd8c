"""Nodes and a network become one cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from probe.findings import finding
from probe.network.direct import nic_links, slot_shares
from probe.network.model import Network
from probe.nics import assign, usable
from synth.errors import CaptureError
from synth.topology import Confidence, Device, DeviceKind, Finding, Link, LinkClass, Topology
from synth.topology.model import abridge


def join(nodes: Sequence[Topology], network: Network, *, name: str = "cluster") -> Topology:
    """Put nodes side by side and join their NICs as the network says.

    Args:
        nodes: one topology per machine; names of machines must differ.
        network: may describe more nodes than are given.
        name: of the result.

    Raises:
        CaptureError: a node is not placed by the network, stands twice, or has no NIC.
    """
    return _Joiner(nodes, network).topology(name)


class _Joiner:
    """Collects switches, uplinks and findings; rates below each switch add up to what it passes on."""

    def __init__(self, nodes: Sequence[Topology], network: Network) -> None:
        self.network = network
        self.nodes = nodes
        counts = Counter(node for part in nodes for node in part.nodes)
        doubled = [node for node, count in counts.items() if count > 1]
        if doubled:
            raise CaptureError(f"{doubled[0]}: {counts[doubled[0]]} of the nodes have this name", subject=doubled[0])
        self.order = {node: position for position, node in enumerate(counts)}
        self.links: list[Link] = []
        self.switches: dict[str, None] = {}
        self.below: defaultdict[str, float] = defaultdict(float)
        self.findings: list[Finding] = []

    def topology(self, name: str) -> Topology:
        parts = [self._without_domain(part) for part in self.nodes]
        for part in parts:
            self._attach(part)
        self._rise()
        if len({len(part.gpus) for part in parts}) == 1:
            self._compare_rails(parts[:64])
        devices = {device.id: device for part in parts for device in part.devices}
        switches = [Device(id=id, kind=DeviceKind.SWITCH) for id in self.switches if id not in devices]
        links = [link for part in parts for link in part.links]
        return Topology(
            name=name,
            devices=(*devices.values(), *switches),
            links=(*links, *self.links),
            findings=(*(f for part in parts for f in part.findings), *self.findings),
        )

    def _without_domain(self, part: Topology) -> Topology:
        """A node whose NVSwitch is the domain's: its GPUs hang on the domain's switch instead."""
        domain = next((self.network.domains[node] for node in part.nodes if node in self.network.domains), None)
        own = [d.id for d in part.devices if d.kind is DeviceKind.SWITCH and d.id.rpartition("/")[2] == "nvswitch"]
        members = [node for node, other in self.network.domains.items() if other == domain and node in self.order]
        if domain is None or len(own) != 1 or len(members) < 2:
            return part
        new = _domain_id(domain)

        def moved(id: str) -> str:
            return new if id == own[0] else id

        # the switch stands in each part under one id, and so becomes one when they are joined
        devices = tuple(replace(d, id=new, node=None) if d.id == own[0] else d for d in part.devices)
        links = tuple(replace(link, src=moved(link.src), dst=moved(link.dst)) for link in part.links)
        return replace(part, devices=devices, links=links)

    def _attach(self, part: Topology) -> None:
        nics = [part.device(id) for id in usable(part)]
        uses = assign(part) if nics else ()
        self.links += nic_links(part, uses)
        rails: dict[str, dict[str, int]] = {}  # node -> NIC -> rail: the NIC of the first GPU is on the first rail
        for use in uses:
            mine = rails.setdefault(part.device(use.gpu).node or "", {})
            mine.setdefault(use.nic, len(mine))
        rates: dict[str, float] = {}
        joined = {end for link in part.links if link.link_class is LinkClass.NETWORK for end in (link.src, link.dst)}
        for link in part.links:
            if link.link_class is LinkClass.PCIE:
                rates[link.src] = max(rates.get(link.src, 0.0), link.bytes_per_s)
        shares = slot_shares(part, {use.nic for use in uses})
        for nic in nics:
            rail = rails.get(nic.node or "", {}).get(nic.id)
            # a NIC that no GPU uses is on no rail
            if nic.id in joined or (self.network.rails and rail is None):
                continue
            rate = self.network.bytes_per_s or rates.get(nic.id, 0.0)
            if rate > 0:
                most = min(rates.get(nic.id) or rate, shares.get(nic.id, rate))
                self._link(nic.id, self._switch_of(nic, rail or 0), min(rate, most))
        if not nics and len(self.order) > 1:
            raise CaptureError(f"{part.name}: has no NIC, so it cannot be joined to a network", subject=part.name)

    def _switch_of(self, nic: Device, rail: int) -> str:
        network, node = self.network, nic.node or ""
        if (node, nic.model or "") in network.ports:
            return network.ports[node, nic.model or ""]
        if network.rails:
            return network.rails[rail % len(network.rails)]
        if network.nodes_per_leaf:
            return f"leaf{self.order[node] // network.nodes_per_leaf}"
        found = network.leaves.get(node, network.default)
        if found is None:
            known = abridge(list(network.leaves), 4)
            raise CaptureError(
                f"{node}: is not placed by the {network.source}, which knows {known or 'no node'}", subject=node
            )
        return found

    def _link(self, nic: str, switch: str, rate: float) -> None:
        self._join(nic, switch, rate, Confidence.READ if self.network.bytes_per_s else Confidence.INFERRED)

    def _join(self, low: str, high: str, rate: float, sure: Confidence) -> None:
        self.switches.setdefault(high)
        self.below[high] += rate
        for src, dst in ((low, high), (high, low)):
            self.links.append(
                Link(
                    src=src,
                    dst=dst,
                    link_class=LinkClass.NETWORK,
                    bytes_per_s=rate,
                    latency_ns=self.network.latency_ns,
                    source=self.network.source,
                    confidence=sure,
                )
            )

    def _rise(self) -> None:
        """Links between switches, from the leaves up; each passes on what comes from below."""
        network = self.network
        parents = dict(network.parents)
        if network.nodes_per_leaf and len(self.switches) > 1:
            parents |= dict.fromkeys(self.switches, "spine")
        level = [switch for switch in self.switches if switch in parents]
        assumed: list[str] = []
        passed: set[str] = set()
        while level:
            # a switch passes on when everything below it has arrived
            ready = [s for s in level if not any(parents.get(o) == s and o not in passed for o in self.switches)]
            for switch in ready or level[:1]:
                rate = network.uplinks.get(switch, 0.0)
                if not rate:
                    rate = self.below[switch] / (network.oversubscription or 1.0)
                    if not network.oversubscription:
                        assumed.append(switch)
                guess = Confidence.INFERRED if network.oversubscription else Confidence.ASSUMED
                self._join(switch, parents[switch], rate, Confidence.READ if switch in network.uplinks else guess)
                passed.add(switch)
            level = [s for s in self.switches if s in parents and s not in passed]
        if assumed:
            text = f"the {network.source} gives no rates; links above {abridge(assumed, 4)} are taken as non-blocking"
            self.findings.append(finding("network-assumed", assumed[0], text))
        if network.rails and not network.parents:
            text = "rails are not routed to each other; plans keep rail i to rail i and relay inside the machines"
            self.findings.append(finding("rails-isolated", "network", text))

    def _compare_rails(self, parts: Sequence[Topology]) -> None:
        """Equal machines should name the NIC of each GPU alike; otherwise one NIC list cannot serve both."""
        seen: dict[tuple[str | None, ...], str] = {}
        for part in parts:
            names = tuple(part.device(use.nic).model for use in assign(part))
            seen.setdefault(names, part.nodes[0])
        if len(seen) > 1 and all(all(names) for names in seen):
            (one, first), (other, second) = list(seen.items())[:2]
            differ = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
            text = (
                f"GPU {differ} uses {one[differ]} on {first} and {other[differ]} on {second}; "
                "set the NIC list for each machine by itself"
            )
            self.findings.append(finding("rails-crossed", second, text))


def _domain_id(domain: str) -> str:
    return f"nvlink-{domain}"
