"""From facts of one machine to its topology: names, rates, links with their source and confidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from probe import health, infer, nics, rates, wiring
from probe.facts import SWITCHED, Bundle, Facts, PcieLink
from probe.findings import finding
from probe.rates import Rate
from synth.errors import CaptureError
from synth.topology import Confidence, Device, DeviceKind, Finding, Link, LinkClass, Topology
from synth.topology.model import abridge

NO_CLIQUE = 32766
"""The fabric's way to say that a GPU is in no clique; GPUs with it must not be grouped by it."""


def complete(facts: Facts) -> Facts:
    """Facts with everything that can be inferred: bundles and tree."""
    return infer.with_tree(wiring.with_bundles(facts))


def topology(facts: Facts, *, name: str = "machine", node: str = "n0") -> Topology:
    """The machine as a topology.

    NVSwitches are one switch device per island, as in the catalog; PCIe switches, sockets and NICs are devices, and
    every pair of GPUs is joined at least over the sockets.

    Args:
        facts: of one machine.
        name: of the topology.
        node: first part of every device id.

    Raises:
        CaptureError: there is no GPU.
    """
    if not facts.gpus:
        raise CaptureError(f"{facts.source}: shows no GPU, so there is nothing to plan for", subject=facts.source)
    machine = _Builder(health.check(complete(facts)), node).topology(name)
    return replace(machine, findings=machine.findings + tuple(nics.findings(machine)))


class _Builder:
    """Collects devices and links; ``ids`` maps the source's names to document ids."""

    def __init__(self, facts: Facts, node: str) -> None:
        self.facts = facts
        self.node = node
        self.devices: list[Device] = []
        self.links: list[Link] = []
        self.findings: list[Finding] = []
        self.ids: dict[str, str] = {}
        self.gpus = {gpu.name: gpu for gpu in facts.gpus}
        self.bundles = facts.bundles or ()
        self.uplinks: dict[str, PcieLink] = {gpu.name: gpu.pcie for gpu in facts.gpus}
        # GPUs lower their PCIe generation when idle, NICs do not: theirs counts as it is
        self.uplinks |= {nic.name: replace(nic.pcie, most_gts=nic.pcie.gts) for nic in facts.nics}
        self.uplinks |= {bridge.name: bridge.pcie for bridge in facts.bridges}
        children = Counter(facts.parents.values())
        # a bridge with one device below is a wire; only bridges that join several are devices
        self.wires = {bridge.name for bridge in facts.bridges if children[bridge.name] < 2}

    def topology(self, name: str) -> Topology:
        self._devices()
        self._nvlinks()
        self._tree()
        findings = [replace(f, subject=self._subject(f.subject)) for f in (*self.facts.findings, *self.findings)]
        return Topology(
            name=name, devices=tuple(self.devices), links=tuple(self.links), findings=tuple(dict.fromkeys(findings))
        )

    def _subject(self, subject: str) -> str:
        """Names in a finding's subject as device ids: ``GPU2`` or ``GPU0-GPU1``."""
        if subject in self.ids:
            return self.ids[subject]
        left, _, right = subject.partition("-")
        return f"{self.ids[left]}:{self.ids[right]}" if left in self.ids and right in self.ids else subject

    def _switch_of(self, bundle: Bundle) -> tuple[str, ...]:
        """What tells NVLink islands apart: the switch's name and, where the driver says it, the fabric's clique."""
        _state, cluster, clique = self.facts.fabric.get(bundle.gpu, ("", "", NO_CLIQUE))
        return (bundle.peer,) if clique == NO_CLIQUE else (bundle.peer, cluster, str(clique))

    def _add(self, name: str, device: Device) -> None:
        self.ids[name] = device.id
        self.devices.append(device)

    def _devices(self) -> None:
        facts, node = self.facts, self.node
        homes = {socket.name: socket.numa for socket in facts.sockets}
        for number, gpu in enumerate(facts.gpus):
            device = Device(
                id=f"{node}/gpu{number}", kind=DeviceKind.GPU, node=node, numa=gpu.numa, pci=gpu.pci, uuid=gpu.uuid,
                model=gpu.model,
            )  # fmt: skip
            self._add(gpu.name, device)
        switches = dict.fromkeys(self._switch_of(b) for b in self.bundles if b.peer.startswith(SWITCHED))
        for number, switch in enumerate(switches):
            id = f"{node}/nvswitch" if len(switches) == 1 else f"{node}/nvswitch{number}"
            self._add("/".join(switch), Device(id=id, kind=DeviceKind.SWITCH, node=node))
        for number, nic in enumerate(facts.nics):
            id = f"{node}/nic{number}"
            numa = nic.numa if nic.numa is not None else homes.get(self._home(nic.name))
            self._add(nic.name, Device(id=id, kind=DeviceKind.NIC, node=node, numa=numa, pci=nic.pci, model=nic.device))
        joining = [bridge for bridge in facts.bridges if bridge.name not in self.wires]
        for number, bridge in enumerate(joining):
            id = f"{node}/pcie{number}"
            self._add(bridge.name, Device(id=id, kind=DeviceKind.SWITCH, node=node, pci=bridge.pci))
        for number, socket in enumerate(facts.sockets):
            id = f"{node}/host{number}"
            self._add(socket.name, Device(id=id, kind=DeviceKind.HOST, node=node, numa=socket.numa))

    def _home(self, name: str) -> str:
        """The socket at the top of a device's tree."""
        while name in self.facts.parents:
            name = self.facts.parents[name]
        return name

    def _link(self, a: str, b: str, kind: LinkClass, rate: Rate, latency_ns: float, *, both: bool = True) -> None:
        for src, dst in ((a, b), (b, a))[: 2 if both else 1]:
            self.links.append(
                Link(
                    src=self.ids[src],
                    dst=self.ids[dst],
                    link_class=kind,
                    bytes_per_s=rate.bytes_per_s,
                    latency_ns=latency_ns,
                    source=f"{self._origin(kind)}; {rate.source}",
                    confidence=rate.confidence,
                )
            )

    def _origin(self, kind: LinkClass) -> str:
        fact = "nvlink" if kind in (LinkClass.NVLINK, LinkClass.C2C) else "tree"
        return self.facts.origin.get(fact, self.facts.source)

    def _nvlinks(self) -> None:
        unsure: list[str] = []
        for bundle in self.bundles:
            rate = self._bundle_rate(bundle)
            if rate.confidence is Confidence.ASSUMED:
                unsure.append(bundle.gpu)
            kind = LinkClass.C2C if bundle.chip else LinkClass.NVLINK
            if bundle.peer.startswith(SWITCHED):
                self._link(bundle.gpu, "/".join(self._switch_of(bundle)), kind, rate, rates.SWITCH_LATENCY_NS)
            elif bundle.peer in self.gpus:
                self._link(bundle.gpu, bundle.peer, kind, rate, rates.NVLINK_LATENCY_NS, both=False)
            else:  # to a socket (Power9, Grace): the source lists the GPU's end only
                socket = bundle.peer if bundle.peer in self.ids else self._home(bundle.gpu)
                self._link(bundle.gpu, socket, kind, rate, rates.NVLINK_LATENCY_NS)
        if unsure:
            rate = self._bundle_rate(next(bundle for bundle in self.bundles if bundle.gpu == unsure[0]))
            self.findings.append(
                finding(
                    "generation-unknown",
                    unsure[0],
                    f"the NVLink generation of {abridge(list(dict.fromkeys(unsure)))} is not known; "
                    f"{rate.source} is assumed (name the GPU with --gpu)",
                )
            )

    def _bundle_rate(self, bundle: Bundle) -> Rate:
        mine = [other for other in self.bundles if other.gpu == bundle.gpu]
        lanes = sum(other.lanes for other in mine)
        if bundle.lane_bytes_per_s:
            rate = Rate(bundle.lane_bytes_per_s, f"{bundle.lanes} lanes read", Confidence.READ)
        else:
            ports = self.facts.ports.get(bundle.gpu)
            rate = rates.lane_rate(self.gpus[bundle.gpu], lanes, max(other.lanes for other in mine))
            if ports is not None and ports.raw_bytes_per_s:
                rate = rates.nominal_lane(ports.raw_bytes_per_s)
        doubtful = (bundle.gpu, bundle.peer) in self.facts.doubtful or (bundle.peer, bundle.gpu) in self.facts.doubtful
        confidence = Confidence.ASSUMED if doubtful else rate.confidence
        return Rate(rate.bytes_per_s * bundle.lanes, f"NV{bundle.lanes}, {rate.source}", confidence)

    def _tree(self) -> None:
        facts = self.facts
        ports = {nic.name: nic for nic in facts.nics}
        counts: Counter[str] = Counter()
        for bundle in self.bundles:
            counts[bundle.gpu] += 0 if bundle.chip else bundle.lanes
        lanes = max(counts.values(), default=0)
        for name in self.ids:
            if name not in facts.parents:
                continue
            parent, link = self._uplink(name)
            rate = rates.pcie_rate(link, facts.gpus, lanes)
            latency = rates.PCIE_LATENCY_NS
            if name in ports:
                rate, latency = rates.nic_rate(ports[name], rate), rates.NIC_LATENCY_NS
            self._link(name, parent, LinkClass.PCIE, rate, latency)
        between = rates.smp_rate(facts.sockets)
        for position, one in enumerate(facts.sockets):
            for other in facts.sockets[position + 1 :]:
                self._link(one.name, other.name, LinkClass.SMP, between, rates.SMP_LATENCY_NS)

    def _uplink(self, name: str) -> tuple[str, PcieLink]:
        """The device above and the narrowest PCIe link on the way, past bridges that are only wires."""
        parent, link = self.facts.parents[name], self.uplinks[name]
        while parent in self.wires:
            above = self.uplinks[parent]
            if _speed(above) and (not _speed(link) or _speed(above) < _speed(link)):
                link = above
            parent = self.facts.parents[parent]
        return parent, link


def _speed(link: PcieLink) -> float:
    return (link.most_gts or link.gts) * (link.width or 16)
