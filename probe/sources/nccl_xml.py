"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``) and RCCL's dialect of it."""

from __future__ import annotations

import re
from dataclasses import replace

from probe.facts import Bridge, Facts, Gpu, Nic, PcieLink, Socket
from probe.findings import finding
from probe.rates import PCI_IDS
from probe.sources.nccl_links import resolve
from probe.sources.pci import bus_id, integer
from probe.sources.xml_tree import Element, parse
from synth.errors import CaptureError
from synth.topology import Finding
from synth.topology.model import abridge

VERSIONS = ("1", "2")
"""NCCL writes 1, RCCL 2."""

_VIRTUAL = re.compile(r"br-|docker|cali|tunl|veth|virbr|vxlan|flannel|cni|dummy|ifb|lo$|kube|vnet|lxc")
_SOCKETS = re.compile(r"eth|en[opsx]|em[0-9]|bond|ib[0-9]|wl")


def read(text: str | bytes, *, subject: str = "nccl-xml") -> Facts:
    """Facts of a topology XML.

    Raises:
        CaptureError: it is ill-formed (with line and column), or no topology.
    """
    root = parse(text, subject)
    if root.tag == "graphs":
        raise CaptureError(
            f"{subject}: is NCCL's graph XML, the result of its search; synth needs the topology that it searched "
            "(NCCL_TOPO_DUMP_FILE)",
            subject=subject,
        )
    if root.tag != "system":
        raise CaptureError(
            f"{subject}: line {root.line}: the root is <{root.tag}>; NCCL's topology starts with <system>",
            subject=subject,
        )
    version = root.attributes.get("version")
    if version not in VERSIONS:
        raise CaptureError(
            f"{subject}: line {root.line}: <system> has version {version!r}; NCCL writes 1, RCCL 2", subject=subject
        )
    return _Reader(subject).facts(root)


class _Reader:
    """Walks the tree once; NVLink targets are resolved when all devices are known."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []
        self.bridges: list[Bridge] = []
        self.sockets: list[Socket] = []
        self.parents: dict[str, str] = {}
        self.links: list[tuple[str, Element, str]] = []  # (gpu, element, socket)
        self.unclassified: list[str] = []
        self.virtual: list[str] = []
        self.hosts: set[str] = set()
        self.described = False  # whether GPUs are described beyond their place on PCI
        self.findings: list[Finding] = []

    def note(self, code: str, subject: str, message: str) -> None:
        self.findings.append(finding(code, subject, message))

    def facts(self, root: Element) -> Facts:
        for cpu in root.children:
            if cpu.tag == "cpu":
                self._cpu(cpu)
            elif cpu.tag in ("gpu", "pci", "nic"):
                raise CaptureError(
                    f"{self.subject}: line {cpu.line}: <{cpu.tag}> stands directly under <system>; "
                    "NCCL puts every device under a <cpu>",
                    subject=self.subject,
                )
        self._order()
        bundles, linked = resolve(self.links, self.gpus)
        self.findings += linked
        self._check_masks()
        if self.gpus and not self.described:
            self.note(
                "nvlink-hidden",
                self.subject,
                "the file places the GPUs on PCI only; NCCL finds NVLink at run time, so its absence here says nothing",
            )
        slow = [gpu.name for gpu in self.gpus if not gpu.pcie.gts]
        if slow and self.described:
            text = f"the PCIe speed of {abridge(slow)} is empty; the speed usual for the model is used"
            self.note("xml-attribute", slow[0], text)
        if self.virtual:
            self.note(
                "virtual-interfaces",
                self.subject,
                f"{len(self.virtual)} virtual network interfaces ({abridge(self.virtual, 3)}) are no NICs; left out",
            )
        if not self.gpus and not self.unclassified:
            raise CaptureError(f"{self.subject}: shows no GPU, so there is nothing to plan for", subject=self.subject)
        if not self.gpus:
            raise CaptureError(
                f"{self.subject}: names {len(self.unclassified)} PCI devices without a class and no GPU; it only means "
                "something together with the machine it is for (probe there, with --nccl-xml)",
                subject=self.subject,
            )
        return Facts(
            source="NCCL topology XML",
            host=next(iter(self.hosts)) if len(self.hosts) == 1 else None,
            gpus=tuple(self.gpus),
            hidden=not self.described,
            nics=tuple(self.nics),
            bridges=tuple(self.bridges),
            sockets=tuple(self.sockets),
            parents=self.parents,
            bundles=tuple(bundles),
            findings=tuple(self.findings),
        )

    def _cpu(self, cpu: Element) -> None:
        name = f"host{len(self.sockets)}"
        numa = integer(cpu.attributes.get("numaid"))
        arch, vendor = cpu.attributes.get("arch"), cpu.attributes.get("vendor")
        self.sockets.append(
            Socket(
                name=name,
                numa=numa if numa is not None and numa >= 0 else None,
                cpus=cpu.attributes.get("affinity"),
                vendor=vendor if arch in (None, "x86_64") else arch,
                model=integer(cpu.attributes.get("modelid")),
                family=integer(cpu.attributes.get("familyid")),
            )
        )
        if cpu.attributes.get("host_hash"):
            self.hosts.add(f"nccl:{cpu.attributes['host_hash']}")
        for child in cpu.children:
            if child.tag == "pci":
                self._pci(child, name, name)
            elif child.tag == "nic":
                self._nets(child, name, None)

    def _pci(self, pci: Element, parent: str, socket: str) -> None:
        bus = bus_id(pci.attributes.get("busid", ""))
        if not bus:
            raise CaptureError(f"{self.subject}: line {pci.line}: <pci> has no busid", subject=self.subject)
        kind = pci.attributes.get("class", "")
        inner = [child.tag for child in pci.children]
        if "gpu" in inner or kind.startswith(("0x03", "0x12")):
            self._gpu(pci, bus, parent, socket)
        elif "nic" in inner or kind.startswith("0x02"):
            self._nic(pci, bus, parent)
        elif kind.startswith("0x06") or "pci" in inner or "pcilink" in inner:
            name = f"pcie{len(self.bridges)}"
            self.bridges.append(Bridge(name=name, pci=bus, pcie=_pcie(pci)))
            self.parents[name] = parent
            for child in pci.children:
                if child.tag == "pci":
                    self._pci(child, name, socket)
                elif child.tag == "nic":
                    self._nets(child, name, bus)
        else:
            self.unclassified.append(bus)

    def _gpu(self, pci: Element, bus: str, parent: str, socket: str) -> None:
        inner = next((child for child in pci.children if child.tag == "gpu"), None)
        attributes = inner.attributes if inner else {}
        dev = integer(attributes.get("dev"))
        gcn = attributes.get("gcn")
        name = f"GPU{dev}" if dev is not None and dev >= 0 else f"GPU@{bus}"
        if name in {gpu.name for gpu in self.gpus}:
            name = f"GPU@{bus}"
        self.gpus.append(
            Gpu(
                name=name,
                pci=bus,
                model=gcn if gcn else PCI_IDS.get(pci.attributes.get("device", "").lower()),
                sm=None if gcn else integer(attributes.get("sm")),
                numa=self.sockets[-1].numa,
                pcie=_pcie(pci),
                visible=dev is None or dev >= 0,
            )
        )
        self.parents[name] = parent
        if dev is not None and dev < 0:
            self.note("gpu-hidden", name, f"the GPU at {bus} has dev {dev}: it belongs to another container")
        for child in inner.children if inner else ():
            if child.tag in ("nvlink", "xgmi", "c2c"):
                nested = [item for item in child.children if item.tag == "link"]
                self.links += [(name, link, socket) for link in nested or [child]]
        self.described |= inner is not None

    def _nic(self, pci: Element, bus: str, parent: str) -> None:
        nets = [net for child in pci.children if child.tag == "nic" for net in child.children if net.tag == "net"]
        if len(nets) > 1:  # ports of one card share its slot
            slot = f"pcie{len(self.bridges)}"
            self.bridges.append(Bridge(name=slot, pci=bus, pcie=_pcie(pci)))
            self.parents[slot] = parent
            parent = slot
        for net in nets:
            self._net(net, parent, bus, _pcie(pci))
        if not nets:
            self._net(None, parent, bus, _pcie(pci))

    def _nets(self, nic: Element, parent: str, bus: str | None) -> None:
        for net in nic.children:
            if net.tag == "net":
                self._net(net, parent, bus, PcieLink())

    def _net(self, net: Element | None, parent: str, bus: str | None, pcie: PcieLink) -> None:
        attributes = net.attributes if net else {}
        device = attributes.get("name")
        if device is not None and bus is None and _VIRTUAL.match(device):
            self.virtual.append(device)
            return
        speed = integer(attributes.get("speed")) or 0
        name = f"NIC{len(self.nics)}"
        self.nics.append(
            Nic(
                name=name,
                device=device,
                pci=bus,
                numa=self.sockets[-1].numa,
                bytes_per_s=speed * 1e6 / 8 if speed > 0 else 0.0,
                pcie=pcie,
                rdma=device is None or not _SOCKETS.match(device),
            )
        )
        self.parents[name] = parent

    def _order(self) -> None:
        """GPUs in the order of their device numbers where all have one; otherwise as the tree lists them."""
        if all(re.fullmatch(r"GPU[0-9]+", gpu.name) for gpu in self.gpus):
            self.gpus.sort(key=lambda gpu: int(gpu.name[3:]))
            return
        if all(gpu.name.startswith("GPU@") for gpu in self.gpus):
            renamed = {gpu.name: f"GPU{number}" for number, gpu in enumerate(self.gpus)}
            self.gpus = [replace(gpu, name=renamed[gpu.name]) for gpu in self.gpus]
            self.parents = {renamed.get(name, name): parent for name, parent in self.parents.items()}
            self.links = [(renamed[name], link, socket) for name, link, socket in self.links]

    def _check_masks(self) -> None:
        masks: list[tuple[Socket, int]] = []
        for socket in self.sockets:
            mask = _mask(socket.cpus)
            for other, taken in masks:
                if mask & taken:
                    self.note(
                        "cpu-masks-overlap",
                        socket.name,
                        f"the CPU masks of NUMA nodes {other.numa} and {socket.numa} overlap",
                    )
            masks.append((socket, mask))


def _mask(text: str | None) -> int:
    digits = (text or "").replace(",", "")
    return int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]{1,1024}", digits) else 0


def _pcie(pci: Element) -> PcieLink:
    speed = re.match(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*GT/s", pci.attributes.get("link_speed", ""))
    width = integer(pci.attributes.get("link_width")) or 0
    return PcieLink(gts=float(speed[1]) if speed else 0.0, width=width if 0 < width <= 32 else 0)
