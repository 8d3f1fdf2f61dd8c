"""Facts: what one source says about one machine, before any of it is believed.

A source that sees the PCI tree (NCCL's XML, sysfs) fills ``parents``; one that only sees how far two devices are apart
(``nvidia-smi topo -m``) fills ``paths``. :mod:`probe.infer` derives the one from the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from synth.topology import Finding

SWITCHED = "nvswitch"
"""The peer of a bundle whose far end is an NVSwitch. All switches that join the same GPUs count as one; where a
machine has several islands a number follows."""


class Distance(IntEnum):
    """How far apart two devices are on PCI Express, as ``nvidia-smi topo`` names it; larger is farther."""

    PIX = 1
    """At most one PCIe bridge between them."""
    PXB = 2
    """Several PCIe bridges, no host bridge."""
    PHB = 3
    """A host bridge (typically the CPU)."""
    NODE = 4
    """Several host bridges of one NUMA node."""
    SYS = 5
    """The interconnect between NUMA nodes (``SOC`` in old drivers)."""


@dataclass(frozen=True, slots=True)
class Path:
    """One cell of a matrix: NVLink with so many lanes, or a distance on PCI Express.

    Attributes:
        lanes: NVLinks bonded between the two, 0 for none.
        distance: class on PCI Express; None where NVLink hides it.
    """

    lanes: int = 0
    distance: Distance | None = None

    def __str__(self) -> str:
        return f"NV{self.lanes}" if self.lanes else self.distance.name if self.distance else "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    """A PCI Express link as it runs now and as it could.

    Attributes:
        gts: transfers per second of a lane now, in GT/s; 0 unknown.
        width: lanes now; 0 unknown.
        most_gts: the most both ends can do; 0 unknown.
        most_width: the widest both ends can do; 0 unknown.
    """

    gts: float = 0.0
    width: int = 0
    most_gts: float = 0.0
    most_width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU.

    Attributes:
        name: how its source calls it, such as ``GPU0``.
        pci: bus id, ``0000:1b:00.0``.
        uuid: as the driver gives it.
        model: product name.
        sm: compute capability times ten (90 for Hopper); AMD's ``gcn`` is in ``model``.
        numa: CPU NUMA node it hangs on.
        memory_numa: NUMA node that its own memory forms (Grace, Power9), not a place for CPUs.
        cpus: CPU list or mask it is close to, as its source writes it.
        pcie: its PCIe link.
        visible: False when the source knows of it but may not use it.
    """

    name: str
    pci: str | None = None
    uuid: str | None = None
    model: str | None = None
    sm: int | None = None
    numa: int | None = None
    memory_numa: int | None = None
    cpus: str | None = None
    pcie: PcieLink = PcieLink()
    visible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network device.

    Attributes:
        name: how its source calls it, such as ``NIC0``.
        device: name of the RDMA or network device, such as ``mlx5_0``.
        pci: bus id.
        numa: NUMA node.
        bytes_per_s: rate of its ports together; 0 unknown.
        most_bytes_per_s: what its ports could do; 0 unknown.
        state: ``active``, ``down``, ... or None.
        pcie: its PCIe link.
        rdma: False for a device that only carries sockets.
        subnet: address range of its rail, where it is told; rails of different subnets may not be routed.
    """

    name: str
    device: str | None = None
    pci: str | None = None
    numa: int | None = None
    bytes_per_s: float = 0.0
    most_bytes_per_s: float = 0.0
    state: str | None = None
    pcie: PcieLink = PcieLink()
    rdma: bool = True
    subnet: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A PCIe switch: ``pcie`` is the link towards the host."""

    name: str
    pci: str | None = None
    pcie: PcieLink = PcieLink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A CPU socket or NUMA node: where PCIe trees end.

    Attributes:
        name: how it is called here.
        numa: its NUMA node, None unknown.
        cpus: CPU list or mask.
        vendor: ``GenuineIntel``, ``AuthenticAMD``, ``arm64``, ``ppc64`` or None.
        model: the CPU's model number.
        family: the CPU's family number.
    """

    name: str
    numa: int | None = None
    cpus: str | None = None
    vendor: str | None = None
    model: int | None = None
    family: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """NVLinks (or xGMI, or C2C) that leave one device for one peer.

    Attributes:
        gpu: name of the device they leave.
        peer: name of the GPU or socket at the far end, or ``SWITCHED``.
        lanes: how many are up.
        lane_bytes_per_s: rate of one, each way; 0 unknown.
        chip: True for C2C inside one package.
    """

    gpu: str
    peer: str
    lanes: int
    lane_bytes_per_s: float = 0.0
    chip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The NVLink ports of one GPU, as ``nvidia-smi nvlink -s`` or NVML tell.

    Attributes:
        up: ports that are active.
        down: ports that exist and are not.
        raw_bytes_per_s: signalling rate of one, each way (a few percent above the data rate); 0 unknown.
        complete: False where the list was cut.
    """

    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    raw_bytes_per_s: float = 0.0
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one source, or several merged, say about one machine.

    Attributes:
        source: what said it, such as ``nvidia-smi topo -m`` or ``nccl-xml``.
        host: hash or name that tells machines apart; None unknown.
        gpus: in the source's own order.
        nics: in the source's own order.
        bridges: PCIe switches.
        sockets: where the PCIe trees end.
        parents: name of device or bridge -> name of the bridge or socket above it; empty where only paths are known.
        paths: (name, name), the first being earlier in gpus + nics -> what lies between; one entry per pair.
        bundles: NVLinks seen from each GPU; None where only paths tell of them.
        ports: gpu name -> its NVLink ports.
        peers: (gpu, gpu) ordered -> P2P status for reads, such as ``OK`` or ``CNS``.
        fabric: gpu name -> (state, cluster uuid, clique) of the NVLink fabric.
        findings: what the source noticed.
        doubtful: pairs whose path was read with a doubt.
        hidden: True when NVLink is not shown on purpose (``topo -mp``).
        origin: fact -> source that won, where several were merged.
    """

    source: str
    host: str | None = None
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    sockets: tuple[Socket, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    bundles: tuple[Bundle, ...] | None = None
    ports: Mapping[str, Ports] = field(default_factory=dict)
    peers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    fabric: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    doubtful: frozenset[tuple[str, str]] = frozenset()
    hidden: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Gpu | Nic, ...]:
        """GPUs, then NICs."""
        return (*self.gpus, *self.nics)

    def path(self, a: str, b: str) -> Path | None:
        """What lies between two devices, in either order; None where it was not read."""
        return self.paths.get((a, b)) or self.paths.get((b, a))
