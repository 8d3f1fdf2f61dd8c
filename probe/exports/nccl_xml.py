"""Writing NCCL's (or RCCL's) topology XML: the corrected file that people otherwise make by hand."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from probe.build import complete
from probe.facts import SWITCHED, Bundle, Facts, Gpu, Nic, PcieLink, Socket
from probe.rates import PCI_IDS
from synth.errors import CaptureError

UNSEEN_SWITCH = "fffffff:ff:ff.0"
"""What NCCL itself writes for an NVSwitch whose bus id it cannot see."""

_ARCHITECTURES = {"arm64": "arm64", "ppc64": "ppc64"}


def write(facts: Facts) -> str:
    """The machine as a topology XML that NCCL loads with ``NCCL_TOPO_FILE``.

    Raises:
        CaptureError: bus ids are not known, without which NCCL cannot match devices.
    """
    facts = complete(facts)
    without = [device.name for device in facts.gpus if device.pci is None]
    if without:
        raise CaptureError(
            f"{facts.source}: does not give the bus id of {without[0]}, without which NCCL cannot match it; "
            "probe on the machine, or add nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader",
            subject=without[0],
        )
    return "\n".join(_Writer(facts).lines()) + "\n"


class _Writer:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.gpus = {gpu.name: gpu for gpu in facts.gpus}
        self.nics = {nic.name: nic for nic in facts.nics}
        self.bridges = {bridge.name: bridge for bridge in facts.bridges}
        self.amd = any(gpu.model and _is_gcn(gpu.model) for gpu in facts.gpus)
        self.below: dict[str, list[str]] = {}
        for name, parent in facts.parents.items():
            self.below.setdefault(parent, []).append(name)

    def lines(self) -> list[str]:
        rows = [f'<system version="{2 if self.amd else 1}">']
        for socket in self.facts.sockets:
            rows.append("  " + _open("cpu", self._cpu(socket)))
            for name in self.below.get(socket.name, []):
                rows += self._device(name, "    ")
            rows.append("  </cpu>")
        return [*rows, "</system>"]

    def _cpu(self, socket: Socket) -> dict[str, object]:
        attributes: dict[str, object] = {"numaid": -1 if socket.numa is None else socket.numa}
        if self.facts.host and self.facts.host.startswith("nccl:"):
            attributes["host_hash"] = self.facts.host.removeprefix("nccl:")
        if socket.cpus and set(socket.cpus) <= set("0123456789abcdefABCDEF,"):
            attributes["affinity"] = socket.cpus
        if socket.vendor:
            attributes["arch"] = _ARCHITECTURES.get(socket.vendor, "x86_64")
            attributes["vendor"] = socket.vendor
        if socket.family is not None:
            attributes["familyid"] = socket.family
        if socket.model is not None:
            attributes["modelid"] = socket.model
        return attributes

    def _device(self, name: str, indent: str) -> list[str]:
        if name in self.gpus:
            return self._gpu(self.gpus[name], indent)
        if name in self.nics:
            return self._nic([self.nics[name]], indent)
        bridge = self.bridges[name]
        children = self.below.get(name, [])
        ports = [self.nics[child] for child in children if child in self.nics]
        if ports and len(ports) == len(children) and all(port.pci == bridge.pci for port in ports):
            return self._nic(ports, indent)
        head = _pci(bridge.pci or f"ffff:{len(name):02x}:{int(name[4:]) % 32:02x}.0", "0x060400", bridge.pcie)
        rows = [indent + _open("pci", head)]
        for child in children:
            rows += self._device(child, indent + "  ")
        return [*rows, f"{indent}</pci>"]

    def _gpu(self, gpu: Gpu, indent: str) -> list[str]:
        attributes = _pci(gpu.pci or "", "0x038000" if self.amd else "0x030200", gpu.pcie)
        device = next((id for id, model in PCI_IDS.items() if model == gpu.model), None)
        if device:
            attributes |= {"vendor": "0x10de", "device": device}
        dev = self.facts.gpus.index(gpu) if gpu.visible else -1
        inner: dict[str, object] = {"dev": dev}
        if gpu.model and _is_gcn(gpu.model):
            inner["gcn"] = gpu.model
        elif gpu.sm is not None:
            inner["sm"] = gpu.sm
        if dev >= 0:
            inner["rank"] = dev
        inner["gdr"] = 1
        links = [self._link(bundle) for bundle in self.facts.bundles or () if bundle.gpu == gpu.name]
        return [
            indent + _open("pci", attributes),
            f"{indent}  {_open('gpu', inner)}",
            *(f"{indent}    {link}" for link in links),
            f"{indent}  </gpu>",
            f"{indent}</pci>",
        ]

    def _link(self, bundle: Bundle) -> str:
        if bundle.chip:
            rate = round(bundle.lane_bytes_per_s / 1e6)
            return _open("c2c", {"bw": rate, "count": bundle.lanes}, closed=True)
        if bundle.peer.startswith(SWITCHED):
            target, kind = UNSEEN_SWITCH, "0x068000"
        elif bundle.peer in self.gpus:
            target, kind = self.gpus[bundle.peer].pci or "", "0x038000" if self.amd else "0x030200"
        else:
            target, kind = "ffff:ff:ff.0", "0x068001"
        tag = "xgmi" if self.amd else "nvlink"
        return _open(tag, {"target": target, "count": bundle.lanes, "tclass": kind}, closed=True)

    def _nic(self, ports: list[Nic], indent: str) -> list[str]:
        nets = [_open("net", self._net(port, number), closed=True) for number, port in enumerate(ports, 1)]
        if ports[0].pci is None:
            return [f"{indent}<nic>", *(f"{indent}  {net}" for net in nets), f"{indent}</nic>"]
        head = _open("pci", _pci(ports[0].pci, "0x020700" if ports[0].rdma else "0x020000", ports[0].pcie))
        return [
            indent + head,
            f"{indent}  <nic>",
            *(f"{indent}    {net}" for net in nets),
            f"{indent}  </nic>",
            f"{indent}</pci>",
        ]

    def _net(self, nic: Nic, port: int) -> dict[str, object]:
        attributes: dict[str, object] = {"name": nic.device or nic.name, "dev": self.facts.nics.index(nic)}
        if nic.bytes_per_s:
            attributes["speed"] = round(nic.bytes_per_s * 8 / 1e6)
        return attributes | {"port": port, "latency": 0, "maxconn": 131072, "gdr": int(nic.rdma)}


def _is_gcn(model: str) -> bool:
    return model.startswith("gfx") or model.isdecimal()


def _pci(bus: str, kind: str, link: PcieLink) -> dict[str, object]:
    attributes: dict[str, object] = {"busid": bus, "class": kind}
    if link.gts:
        attributes["link_speed"] = f"{link.gts:.1f} GT/s PCIe"
    return attributes | ({"link_width": link.width} if link.width else {})


def _open(tag: str, attributes: dict[str, object], *, closed: bool = False) -> str:
    words = " ".join(f"{key}={quoteattr(str(value))}" for key, value in attributes.items())
    return f"<{tag} {words}{'/' if closed else ''}>"
