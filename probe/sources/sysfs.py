"""Linux's sysfs: the PCI tree with real link speeds, NUMA nodes, access control, RDMA and network devices."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from probe.facts import Bridge, Facts, Gpu, Nic, PcieLink, Socket
from probe.findings import finding
from probe.rates import PCI_IDS
from synth.errors import CaptureError
from synth.topology import Finding
from synth.topology.model import abridge, natural_key

_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_VENDORS = ("0x10de", "0x1002")
_ACS = 0x0D
_REDIRECT = 0x0C
"""Request and completion redirect: peer traffic goes up to the root complex."""


def read(root: Path = Path("/")) -> Facts:
    """Facts that sysfs gives of this machine.

    Args:
        root: where ``sys`` and ``proc`` are; another folder in tests.

    Raises:
        CaptureError: there is no sysfs, or no GPU in it.
    """
    if not (root / "sys/bus/pci/devices").is_dir():
        raise CaptureError("sysfs: is not mounted or has no PCI devices", subject="sysfs")
    return _Reader(root).facts()


@dataclass(frozen=True, slots=True)
class _Pci:
    """One PCI function: its bus id, the functions above it from the root on, and its attributes' folder."""

    bus: str
    above: tuple[str, ...]
    folder: Path
    kind: str
    vendor: str
    numa: int | None


class _Reader:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = {device.bus: device for device in self._functions()}
        self.findings: list[Finding] = []

    def _functions(self) -> Iterator[_Pci]:
        for entry in sorted((self.root / "sys/bus/pci/devices").iterdir()):
            chain = tuple(part for part in entry.resolve().parts if _BUS.fullmatch(part))
            if not chain:
                continue
            numa = _integer(_text(entry / "numa_node"))
            yield _Pci(
                bus=chain[-1],
                above=chain[:-1],
                folder=entry,
                kind=_text(entry / "class"),
                vendor=_text(entry / "vendor"),
                numa=numa if numa is not None and numa >= 0 else None,
            )

    def facts(self) -> Facts:
        found = [
            device
            for device in self.devices.values()
            if device.vendor in _GPU_VENDORS and device.kind.startswith(("0x03", "0x12"))
        ]
        if not found:
            raise CaptureError("sysfs: shows no GPU", subject="sysfs")
        gpus = [self._gpu(number, device) for number, device in enumerate(found)]
        nics = self._nics()
        bridges: dict[str, Bridge] = {}
        sockets: dict[int | None, Socket] = {}
        parents: dict[str, str] = {}
        hanging: list[Gpu | Nic] = [*gpus, *nics]
        for device in hanging:
            self._hang(device.name, self.devices[device.pci or ""], bridges, sockets, parents)
        self._check_acs(bridges)
        translated = [gpu.name for gpu, device in zip(gpus, found, strict=True) if _translated(device.folder)]
        if translated:
            text = f"the IOMMU translates addresses of {abridge(translated)}, which can slow or prevent P2P"
            self.findings.append(finding("iommu-translating", translated[0], text))
        if "hypervisor" in _text(self.root / "proc/cpuinfo"):
            text = "this is a virtual machine; its PCIe tree may not be the real one"
            self.findings.append(finding("virtual-machine", "sysfs", text))
        return Facts(
            source="sysfs",
            host=self._host(),
            gpus=tuple(gpus),
            nics=tuple(nics),
            bridges=tuple(bridges.values()),
            sockets=tuple(sockets.values()),
            parents=parents,
            findings=tuple(self.findings),
            hidden=True,
        )

    def _host(self) -> str | None:
        """The same in all containers of a machine until it boots again."""
        boot = _text(self.root / "proc/sys/kernel/random/boot_id")
        return f"boot:{hashlib.sha256(boot.encode()).hexdigest()[:16]}" if boot else None

    def _gpu(self, number: int, device: _Pci) -> Gpu:
        return Gpu(
            name=f"GPU{number}",
            pci=device.bus,
            model=PCI_IDS.get(_text(device.folder / "device")) if device.vendor == "0x10de" else None,
            numa=device.numa,
            cpus=_text(device.folder / "local_cpulist") or None,
            pcie=_pcie(device.folder),
        )

    def _nics(self) -> list[Nic]:
        nics: list[Nic] = []
        taken: set[str] = set()
        for entry in sorted(_entries(self.root / "sys/class/infiniband"), key=lambda e: natural_key(e.name)):
            device = self._device_of(entry)
            if device is None:
                continue
            taken.add(device.bus)
            ports = sorted(_entries(entry / "ports"))
            active = [port for port in ports if "ACTIVE" in _text(port / "state")]
            nics.append(
                Nic(
                    name=f"NIC{len(nics)}",
                    device=entry.name,
                    pci=device.bus,
                    numa=device.numa,
                    bytes_per_s=sum(_gigabits(_text(port / "rate")) for port in active or ports) * 1e9 / 8,
                    state="active" if active else "down" if ports else None,
                    pcie=_pcie(device.folder),
                )
            )
        for entry in sorted(_entries(self.root / "sys/class/net"), key=lambda e: natural_key(e.name)):
            device = self._device_of(entry)
            if device is None or device.bus in taken:
                continue
            taken.add(device.bus)
            speed = _integer(_text(entry / "speed")) or 0
            state = _text(entry / "operstate")
            nics.append(
                Nic(
                    name=f"NIC{len(nics)}",
                    device=entry.name,
                    pci=device.bus,
                    numa=device.numa,
                    bytes_per_s=max(0, speed) * 1e6 / 8,
                    state="active" if state == "up" else "down" if state == "down" else None,
                    pcie=_pcie(device.folder),
                    rdma=False,
                )
            )
        return nics

    def _device_of(self, entry: Path) -> _Pci | None:
        """The PCI function behind a network device; virtual ones have none (virtio hangs one level below)."""
        target = (entry / "device").resolve()
        return next((self.devices[part] for part in reversed(target.parts) if part in self.devices), None)

    def _hang(
        self,
        name: str,
        device: _Pci,
        bridges: dict[str, Bridge],
        sockets: dict[int | None, Socket],
        parents: dict[str, str],
    ) -> None:
        if device.numa not in sockets:
            sockets[device.numa] = self._socket(len(sockets), device.numa)
        above = sockets[device.numa].name
        for bus in device.above:
            if bus not in bridges:
                folder = self.devices[bus].folder if bus in self.devices else None
                link = _pcie(folder) if folder else PcieLink()
                bridges[bus] = Bridge(name=f"pcie{len(bridges)}", pci=bus, pcie=link)
                parents[bridges[bus].name] = above
            above = bridges[bus].name
        parents[name] = above

    def _socket(self, number: int, numa: int | None) -> Socket:
        cpus = _text(self.root / f"sys/devices/system/node/node{numa}/cpulist") if numa is not None else ""
        info = _text(self.root / "proc/cpuinfo")
        vendor = re.search(r"^vendor_id\s*:\s*(\S+)", info, re.M)
        family = re.search(r"^cpu family\s*:\s*([0-9]+)", info, re.M)
        model = re.search(r"^model\s*:\s*([0-9]+)", info, re.M)
        name = vendor[1] if vendor else "arm64" if "CPU implementer" in info else "ppc64" if "POWER" in info else None
        return Socket(
            name=f"host{number}",
            numa=numa,
            cpus=cpus or None,
            vendor=name,
            model=int(model[1]) if model else None,
            family=int(family[1]) if family else None,
        )

    def _check_acs(self, bridges: dict[str, Bridge]) -> None:
        for bus, bridge in bridges.items():
            if bus in self.devices and _redirects(self.devices[bus].folder / "config"):
                text = f"access control is on at the bridge {bus}: peer traffic goes through the root complex"
                self.findings.append(finding("acs-enabled", bridge.name, text))


def _redirects(config: Path) -> bool:
    """Whether a function's access control sends peer traffic upstream; False where config space is not readable."""
    try:
        data = config.read_bytes()
    except OSError:
        return False
    offset, seen = 0x100, 0
    while 0x100 <= offset <= len(data) - 8 and seen < 64:
        header = struct.unpack_from("<I", data, offset)[0]
        if header & 0xFFFF == _ACS:
            return bool(struct.unpack_from("<H", data, offset + 6)[0] & _REDIRECT)
        offset, seen = header >> 20 & 0xFFC, seen + 1
    return False


def _translated(folder: Path) -> bool:
    """Whether the IOMMU maps a function's addresses, instead of passing them through."""
    return _text(folder / "iommu_group/type").startswith("DMA")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _gigabits(text: str) -> float:
    match = re.match(r"([0-9]{1,5}(?:\.[0-9]+)?) Gb/sec", text)
    return float(match[1]) if match else 0.0


def _pcie(folder: Path) -> PcieLink:
    def gts(file: Path) -> float:
        match = re.match(r"([0-9]{1,3}(?:\.[0-9]+)?) GT/s", _text(file))
        return float(match[1]) if match else 0.0

    def width(name: str) -> int:
        lanes = _integer(_text(folder / name)) or 0
        return lanes if 0 < lanes <= 32 else 0

    # what the slot above can do limits what the card can
    most = [speed for place in (folder, folder.resolve().parent) if (speed := gts(place / "max_link_speed"))]
    return PcieLink(
        gts=gts(folder / "current_link_speed"),
        width=width("current_link_width"),
        most_gts=min(most, default=0.0),
        most_width=width("max_link_width"),
    )
