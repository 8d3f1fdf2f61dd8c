"""hwloc's view of a machine: ``lstopo --of xml`` with its NVLink bandwidths, and the console text."""

from __future__ import annotations

import re
from dataclasses import replace

from probe.facts import SWITCHED, Bridge, Bundle, Facts, Gpu, Nic, PcieLink, Socket
from probe.rates import model_of
from probe.sources.text import clean_lines
from probe.sources.xml_tree import Element, parse
from synth.errors import CaptureError

_X16_GEN3 = 15.753846
"""What hwloc prints for 16 lanes of 8 GT/s, in GB/s; other links scale with it."""

_GPU_VENDORS = ("10de", "1002")
_GPU_CLASSES = ("03", "12")


def read(text: str | bytes, *, subject: str = "lstopo") -> Facts:
    """Facts of an lstopo XML.

    Raises:
        CaptureError: it is ill-formed, no lstopo output, or shows no GPU.
    """
    root = parse(text, subject)
    if root.tag != "topology":
        raise CaptureError(f"{subject}: the root is <{root.tag}>; lstopo writes <topology>", subject=subject)
    reader = _Reader(subject)
    for child in root.children:
        if child.tag == "object":
            reader.walk(child, None)
    return reader.facts(root)


class _Reader:
    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []
        self.bridges: list[Bridge] = []
        self.sockets: list[Socket] = []
        self.parents: dict[str, str] = {}
        self.objects: dict[str, str] = {}  # "OSDev:802" -> name here

    def walk(self, element: Element, parent: str | None) -> None:
        kind = element.attributes.get("type", "")
        match kind:
            case "Package":
                parent = self._package(element)
            case "Bridge" if element.attributes.get("bridge_type") == "1-1":
                parent = self._bridge(element, parent)
            case "PCIDev":
                self._device(element, parent)
                return
        for child in element.children:
            if child.tag == "object":
                self.walk(child, parent)

    def _root(self) -> str:
        """A socket for devices that hang on the machine itself."""
        if not self.sockets:
            self.sockets.append(Socket(name="host0"))
        return self.sockets[0].name

    def _package(self, element: Element) -> str:
        info = _info(element)
        numa = next((c for c in element.children if c.attributes.get("type") == "NUMANode"), None)
        arch = "ppc64" if "POWER" in info.get("CPUModel", "") else info.get("CPUVendor")
        model = info.get("CPUModelNumber", "")
        socket = Socket(
            name=f"host{len(self.sockets)}",
            numa=_number(numa.attributes.get("os_index")) if numa else None,
            vendor=arch,
            model=int(model) if model.isdecimal() and len(model) < 6 else None,
        )
        self.sockets.append(socket)
        self.objects[f"Package:{element.attributes.get('gp_index')}"] = socket.name
        return socket.name

    def _bridge(self, element: Element, parent: str | None) -> str:
        name = f"pcie{len(self.bridges)}"
        self.bridges.append(Bridge(name=name, pci=element.attributes.get("pci_busid"), pcie=_pcie(element)))
        self.parents[name] = parent or self._root()
        return name

    def _device(self, element: Element, parent: str | None) -> None:
        parent = parent or self._root()
        kind = re.match(r"([0-9a-f]{2})[0-9a-f]{2} \[([0-9a-f]{4}):", element.attributes.get("pci_type", ""))
        names = [child for child in element.children if child.attributes.get("type") == "OSDev"]
        index = f"PCIDev:{element.attributes.get('gp_index')}"
        bus = element.attributes.get("pci_busid")
        if kind and kind[1] in _GPU_CLASSES and kind[2] in _GPU_VENDORS:
            info = {key: value for child in names for key, value in _info(child).items()}
            name = f"GPU{len(self.gpus)}"
            self.gpus.append(
                Gpu(name=name, pci=bus, model=info.get("GPUModel"), uuid=info.get("NVIDIAUUID"), pcie=_pcie(element))
            )
            self.parents[name] = parent
            self.objects[index] = name
            for child in names:
                self.objects[f"OSDev:{child.attributes.get('gp_index')}"] = name
        elif kind and kind[1] == "02":
            self._nic(names, bus, parent, _pcie(element))
        elif element.attributes.get("subtype") == "NVSwitch" or (kind and kind[1] == "06"):
            self.objects[index] = SWITCHED

    def _nic(self, names: list[Element], bus: str | None, parent: str, pcie: PcieLink) -> None:
        labels = [child.attributes.get("name", "") for child in names]
        rdma = [label for label in labels if re.match(r"mlx|hfi|bnxt_re|irdma|efa|roce|ib[ps]|qedr", label)]
        for label in rdma or labels[:1] or [""]:
            name = f"NIC{len(self.nics)}"
            self.nics.append(Nic(name=name, device=label or None, pci=bus, pcie=pcie, rdma=bool(rdma)))
            self.parents[name] = parent

    def facts(self, root: Element) -> Facts:
        if not self.gpus:
            raise CaptureError(f"{self.subject}: shows no GPU, so there is nothing to plan for", subject=self.subject)
        homes = {socket.name: socket.numa for socket in self.sockets}
        return Facts(
            source="lstopo XML",
            gpus=tuple(replace(gpu, numa=homes.get(self._home(gpu.name))) for gpu in self.gpus),
            nics=tuple(replace(nic, numa=homes.get(self._home(nic.name))) for nic in self.nics),
            bridges=tuple(self.bridges),
            sockets=tuple(self.sockets),
            parents=self.parents,
            bundles=self._bundles(root),
        )

    def _home(self, name: str) -> str:
        while name in self.parents:
            name = self.parents[name]
        return name

    def _bundles(self, root: Element) -> tuple[Bundle, ...]:
        table = next((c for c in root.children if c.attributes.get("name") == "NVLinkBandwidth"), None)
        if table is None:
            return ()
        ids = " ".join(_words(table, "indexes")).split()
        values = [int(word) for word in " ".join(_words(table, "u64values")).split() if word.isdecimal()]
        if len(values) != len(ids) ** 2:
            return ()
        gpus = {gpu.name: gpu for gpu in self.gpus}
        total: dict[tuple[str, str], int] = {}
        for row, source in enumerate(ids):
            for column, target in enumerate(ids):
                a, b = self.objects.get(source, ""), self.objects.get(target, "")
                megabytes = values[row * len(ids) + column]
                if a in gpus and b and a != b and megabytes > 0:
                    total[a, b] = total.get((a, b), 0) + megabytes
        bundles = []
        for (a, b), megabytes in total.items():
            model = model_of(gpus[a])
            lane = model.lane if model is not None and model.lane else 25e9
            lanes = max(1, round(megabytes * 1e6 / lane))
            bundles.append(Bundle(gpu=a, peer=b, lanes=lanes, lane_bytes_per_s=megabytes * 1e6 / lanes))
        return tuple(bundles)


def _words(table: Element, tag: str) -> list[str]:
    return [child.text for child in table.children if child.tag == tag]


def _info(element: Element) -> dict[str, str]:
    pairs = [(c.attributes.get("name", ""), c.attributes.get("value", "")) for c in element.children if c.tag == "info"]
    return dict(pairs)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 7 else None


def _pcie(element: Element) -> PcieLink:
    match = re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,9}", element.attributes.get("pci_link_speed", ""))
    speed = float(match[0]) if match else 0.0
    return PcieLink(gts=8.0 * speed / _X16_GEN3, width=16) if speed > 0.1 else PcieLink()


_NODE = re.compile(r"\s*NUMANode L#[0-9]+ \(P#([0-9]{1,6})\b")
_MEMORY_NODE = re.compile(r"\s*NUMANode\(GPUMemory\) L#[0-9]+ \(P#([0-9]{1,6}) .*PCIBusID=([0-9A-Fa-f:.]+)\)")


def read_console(text: str, *, subject: str = "lstopo") -> Facts:
    """Facts of lstopo's console text: GPUs and the NUMA nodes their memory forms; nothing on rates.

    Raises:
        CaptureError: it shows no GPU.
    """
    gpus: list[Gpu] = []
    sockets: list[Socket] = []
    parents: dict[str, str] = {}
    memory: dict[str, int] = {}
    for line in clean_lines(text, subject):
        if re.match(r"\s*Package L#[0-9]+ \(P#[0-9]", line):
            vendor = "ppc64" if "POWER" in line else None
            sockets.append(Socket(name=f"host{len(sockets)}", vendor=vendor))
        elif match := re.match(
            r"\s*NUMANode\(GPUMemory\) L#[0-9]+ \(P#([0-9]{1,6}) .*PCIBusID=([0-9A-Fa-f:.]+)\)", line
        ):
            memory[match[2].lower()] = int(match[1])
        elif (
            sockets
            and sockets[-1].numa is None
            and (match := re.match(r"\s*NUMANode L#[0-9]+ \(P#([0-9]{1,6})\b", line))
        ):
            sockets[-1] = replace(sockets[-1], numa=int(match[1]))
        elif match := re.match(r"\s*PCI L#[0-9]+ \(busid=([0-9A-Fa-f:.]+) .*class=03[0-9A-Fa-f]{2}", line):
            if not sockets:
                sockets.append(Socket(name="host0"))
            name = f"GPU{len(gpus)}"
            bus = match[1].lower()
            gpus.append(Gpu(name=name, pci=bus, numa=sockets[-1].numa, memory_numa=memory.get(bus)))
            parents[name] = sockets[-1].name
    if not gpus:
        raise CaptureError(f"{subject}: shows no GPU, so there is nothing to plan for", subject=subject)
    gpus = [replace(gpu, memory_numa=memory.get(gpu.pci or "")) for gpu in gpus]
    return Facts(source="lstopo", gpus=tuple(gpus), sockets=tuple(sockets), parents=parents, bundles=(), hidden=True)
