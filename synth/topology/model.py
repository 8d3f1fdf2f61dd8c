"""The topology: devices joined by directed links, as one frozen value.

Vocabulary, used everywhere: a **node** is a machine; a **device** is a gpu, nic, switch or host; a **link** is one
direction of one bundle between two devices; a **finding** is something the probe noticed. GPUs may relay (store and
forward). Switches, NICs and hosts only forward.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from synth.errors import TopologyError

MAX_DEVICES = 200_000
MAX_LINKS = 1_000_000


class DeviceKind(StrEnum):
    """What a device is, and so what it can do with data."""

    GPU = "gpu"
    """Holds data; can copy, add, store and relay."""
    NIC = "nic"
    """Forwards between its node and the network."""
    SWITCH = "switch"
    """Forwards: an NVSwitch, a PCIe switch or a network switch."""
    HOST = "host"
    """Forwards: a CPU socket or its root complex."""


class LinkClass(StrEnum):
    """What a link is made of."""

    NVLINK = "nvlink"
    """NVLink or xGMI."""
    C2C = "c2c"
    """Chip to chip inside one package."""
    PCIE = "pcie"
    """PCI Express."""
    SMP = "smp"
    """Between CPU sockets."""
    NETWORK = "network"
    """InfiniBand, RoCE or Ethernet."""


class Confidence(StrEnum):
    """How a link's rate is known."""

    MEASURED = "measured"
    """Timed on this machine."""
    READ = "read"
    """Stated by a tool on this machine."""
    INFERRED = "inferred"
    """Follows from what was read (generation and lane count)."""
    ASSUMED = "assumed"
    """Only usual for such a machine."""


class Severity(StrEnum):
    """How much a finding matters."""

    INFO = "info"
    """Worth knowing; nothing is wrong."""
    WARNING = "warning"
    """Something is slower or less certain than it should be."""
    ERROR = "error"
    """Something does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device.

    Attributes:
        id: ``node/local`` for what belongs to a node, free for fabric switches.
        kind: what it is.
        node: name of its machine; None for fabric switches.
        numa: NUMA node it hangs on.
        pci: bus id, such as ``0000:1b:00.0``.
        uuid: as the driver gives it.
        model: product name, free text.
    """

    id: str
    kind: DeviceKind
    node: str | None = None
    numa: int | None = None
    pci: str | None = None
    uuid: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of one bundle.

    Attributes:
        src: id of the sending device.
        dst: id of the receiving device.
        link_class: what it is made of (``class`` in the document).
        bytes_per_s: rate of the whole bundle in this direction.
        latency_ns: time the first byte takes.
        source: where the facts came from, free text.
        confidence: how the rate is known.
    """

    src: str
    dst: str
    link_class: LinkClass
    bytes_per_s: float
    latency_ns: float
    source: str | None = None
    confidence: Confidence | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bytes_per_s) and self.bytes_per_s > 0):
            raise TopologyError(
                f"link {self.src} -> {self.dst}: bytes_per_s is {self.bytes_per_s}; must be above 0 and finite "
                "(a dead link is left out)",
                subject=f"{self.src}:{self.dst}",
            )
        if not (math.isfinite(self.latency_ns) and self.latency_ns >= 0):
            raise TopologyError(
                f"link {self.src} -> {self.dst}: latency_ns is {self.latency_ns}; must be at least 0 and finite",
                subject=f"{self.src}:{self.dst}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something the probe noticed.

    Attributes:
        code: stable and short, such as ``nvlink-down``.
        severity: how much it matters.
        subject: device id, ``src:dst`` of a link, or the source that is at fault.
        message: one sentence: what was seen and what to do.
    """

    code: str
    severity: Severity
    subject: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Devices and links of a node or a cluster. Order is kept: a certificate's lengths follow the order of links.

    Raises:
        TopologyError: ids repeat, a link names a device that is not there or joins a device to itself, or the
            topology is larger than ``MAX_DEVICES`` and ``MAX_LINKS``.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if len(self.devices) > MAX_DEVICES or len(self.links) > MAX_LINKS:
            raise TopologyError(
                f"topology {self.name}: {len(self.devices)} devices and {len(self.links)} links; "
                f"at most {MAX_DEVICES} and {MAX_LINKS} are accepted",
                subject=self.name,
            )
        if len(self.index) != len(self.devices):
            seen: set[str] = set()
            double = next(d.id for d in self.devices if d.id in seen or seen.add(d.id))  # type: ignore[func-returns-value]
            raise TopologyError(f"topology {self.name}: device id {double} stands twice", subject=double)
        for link in self.links:
            for end in (link.src, link.dst):
                if end not in self.index:
                    raise TopologyError(
                        f"topology {self.name}: link {link.src} -> {link.dst} names {end}, which is not among the "
                        "devices",
                        subject=end,
                    )
            if link.src == link.dst:
                raise TopologyError(
                    f"topology {self.name}: a link joins {link.src} to itself; links join two devices",
                    subject=link.src,
                )

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each device id."""
        return {device.id: position for position, device in enumerate(self.devices)}

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Ids of the GPUs, in the document's order: the default ranks."""
        return tuple(device.id for device in self.devices if device.kind is DeviceKind.GPU)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the machines, in order of first appearance."""
        return tuple(dict.fromkeys(device.node for device in self.devices if device.node is not None))

    @cached_property
    def out_links(self) -> tuple[tuple[int, ...], ...]:
        """For each device, the positions of the links that leave it."""
        rows: list[list[int]] = [[] for _ in self.devices]
        for position, link in enumerate(self.links):
            rows[self.index[link.src]].append(position)
        return tuple(map(tuple, rows))

    @cached_property
    def link_ends(self) -> tuple[tuple[int, int], ...]:
        """For each link, the positions of the devices it leaves and enters."""
        return tuple((self.index[link.src], self.index[link.dst]) for link in self.links)

    @cached_property
    def link_rates(self) -> tuple[float, ...]:
        """Rate of each link, as plain numbers."""
        return tuple(link.bytes_per_s for link in self.links)

    @cached_property
    def is_gpu(self) -> tuple[bool, ...]:
        """For each device, whether it is a GPU."""
        return tuple(device.kind is DeviceKind.GPU for device in self.devices)

    @cached_property
    def bytes_per_s(self) -> np.ndarray:
        """Rate of each link, [links] float64."""
        return np.array([link.bytes_per_s for link in self.links], dtype=np.float64)

    @cached_property
    def latency_ns(self) -> np.ndarray:
        """Latency of each link, [links] float64."""
        return np.array([link.latency_ns for link in self.links], dtype=np.float64)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the machine's shape: equal machines have equal fingerprints, whatever they are called."""
        from synth.topology.fingerprint import fingerprint

        return fingerprint(self)

    def device(self, id: str) -> Device:
        """The device of this id.

        Raises:
            TopologyError: there is none.
        """
        try:
            return self.devices[self.index[id]]
        except KeyError:
            raise TopologyError(
                f"topology {self.name}: has no device {id}; its GPUs are {abridge(self.gpus)}", subject=id
            ) from None


def abridge(items: Sequence[object], most: int = 8) -> str:
    """Join items for a message, cutting long lists."""
    shown = ", ".join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown}, ... ({len(items)} in all)"


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which ``gpu2`` comes before ``gpu10``."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", text) if part
    )
