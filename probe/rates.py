"""Rates and latencies: what each kind of link can carry, and who says so.

NVLink counts its nominal data rate, as published synthesizers do (about 80 % of it reaches an application).
PCIe, sockets and networks count what NCCL's own search assumes, since nothing reaches their nominal rate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probe.facts import Gpu, Nic, PcieLink, Socket
from synth.topology import Confidence

GB = 1e9

NVLINK_LATENCY_NS = 700.0
"""GPU to GPU over NVLink: TE-CCL's NDv2 model, 0.7 us (shared/data/links.md)."""
SWITCH_LATENCY_NS = 350.0
"""GPU to NVSwitch, half of that: TE-CCL's DGX-2 model, 0.35 us."""
PCIE_LATENCY_NS = 500.0
"""One PCIe hop; p2pBandwidthLatencyTest sees 1.2 to 2 us between GPUs, two to four hops apart."""
NIC_LATENCY_NS = 300.0
"""NIC to the PCIe switch or host above it."""
SMP_LATENCY_NS = 500.0
"""Between sockets: remote memory takes 60 to 130 ns more than local, plus the root complexes on the way."""
NETWORK_LATENCY_NS = 1300.0
"""NIC to the fabric: TE-CCL's NDv2 model, 1.3 us."""

PCIE_X16 = {2.5: 3 * GB, 5.0: 6 * GB, 8.0: 12 * GB, 16.0: 24 * GB, 32.0: 48 * GB, 64.0: 96 * GB}
"""GT/s -> usable rate of 16 lanes, as NCCL's topology search assumes (its table of PCIe generations)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate, where it comes from and how sure it is."""

    bytes_per_s: float
    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Model:
    """What a GPU model can do.

    Attributes:
        name: short name of the model or family.
        lanes: NVLinks it has, 0 for none.
        lane: nominal data rate of one, each way.
        gts: its PCIe generation in GT/s.
        switched: True where a machine of more than four always has NVSwitches.
    """

    name: str
    lanes: int
    lane: float
    gts: float
    switched: bool = False


# Product briefs give NVLink totals for both directions together: P100 160 GB/s over 4, V100 300 over 6, A100 600 over
# 12, A30 200 over 4, RTX 3090 and A6000 112.5 over 4, H100 900 over 18, B200 1800 over 18.
_MODELS: tuple[tuple[str, Model], ...] = (
    (r"P100", Model("P100", 4, 20 * GB, 8.0)),
    (r"V100S|V100.PCI|TITAN V", Model("V100 PCIe", 0, 0.0, 8.0)),
    (r"V100", Model("V100", 6, 25 * GB, 8.0)),
    (r"A100.PCI|A100 80GB PCI", Model("A100 PCIe", 12, 25 * GB, 16.0)),
    (r"A100", Model("A100", 12, 25 * GB, 16.0, True)),
    (r"A800", Model("A800", 8, 25 * GB, 16.0, True)),
    (r"A30\b", Model("A30", 4, 25 * GB, 16.0)),
    (r"A40\b|RTX A[56]\d00|RTX 3090|A5500", Model("GA102", 4, 14.0625 * GB, 16.0)),
    (r"H100 PCIe|H100 NVL", Model("H100 PCIe", 12, 25 * GB, 32.0)),
    (r"H200 NVL", Model("H200 NVL", 18, 25 * GB, 32.0)),
    (r"H100|H200|H20\b|GH200", Model("H100", 18, 25 * GB, 32.0, True)),
    (r"H800", Model("H800", 8, 25 * GB, 32.0, True)),
    (r"G?B[123]00\b", Model("B200", 18, 50 * GB, 32.0, True)),
    (r"GB10\b", Model("GB10", 0, 0.0, 32.0)),
    (r"RTX 20\d\d|RTX [5678]000\b(?! Ada)|TITAN RTX", Model("TU102", 2, 25 * GB, 8.0)),
    (r"RTX (PRO )?[0-9]000.*Blackwell|RTX 50\d\d", Model("RTX Blackwell", 0, 0.0, 32.0)),
    (r"RTX 40\d\d|RTX [0-9]+ ?Ada|Ada Generation|L4\b|L20\b|L40S?\b", Model("Ada", 0, 0.0, 16.0)),
    (r"RTX 30\d\d|A10G?\b|A16\b|A2\b", Model("Ampere PCIe", 0, 0.0, 16.0)),
    (r"T4\b|K80|M60|P40|P4\b|K40|GTX", Model("PCIe only", 0, 0.0, 8.0)),
    # RCCL's own rates per xGMI link; MI250's and MI300's are the data sheets' (100 and 128 GB/s both ways)
    (r"gfx95|MI35", Model("MI350", 7, 72 * GB, 32.0)),
    (r"gfx94|MI30|MI32", Model("MI300", 7, 64 * GB, 32.0)),
    (r"gfx90a|\b910\b|MI2\d0", Model("MI200", 8, 50 * GB, 16.0)),
    (r"gfx908|\b908\b|MI100", Model("MI100", 3, 46 * GB, 16.0)),
    (r"gfx906|\b906\b|MI50|MI60", Model("MI50", 2, 46 * GB, 16.0)),
)

_COMPUTE: dict[int, str] = {60: "P100", 70: "V100", 80: "A100", 90: "H100", 100: "B200", 103: "B300"}
"""Compute capability -> family, for those that one NVLink rate belongs to."""
_WITHOUT_NVLINK = {61: 8.0, 89: 16.0, 120: 32.0, 121: 32.0}

PCI_IDS: dict[str, str] = {
    "0x15f8": "Tesla P100-PCIE", "0x15f9": "Tesla P100-SXM2",
    "0x1db1": "Tesla V100-SXM2-16GB", "0x1db5": "Tesla V100-SXM2-32GB", "0x1db8": "Tesla V100-SXM3-32GB",
    "0x20b0": "A100-SXM4-40GB", "0x20b2": "A100-SXM4-80GB", "0x20b5": "A100 80GB PCIe", "0x20f1": "A100-PCIE-40GB",
    "0x20f3": "A800-SXM4-80GB", "0x2204": "GeForce RTX 3090", "0x2230": "RTX A6000", "0x2235": "A40", "0x2237": "A10G",
    "0x2324": "H800", "0x2329": "H20", "0x2330": "H100 80GB HBM3", "0x2331": "H100 PCIe", "0x2335": "H200",
    "0x2684": "GeForce RTX 4090", "0x27b8": "L4", "0x27ba": "L20", "0x26ba": "L20", "0x26b9": "L40S", "0x26b5": "L40",
    "0x27b2": "RTX 4000 Ada Generation", "0x2901": "B200", "0x2b85": "GeForce RTX 5090", "0x2e12": "GB10",
}  # fmt: skip
"""PCI device id of NVIDIA GPUs -> product name (the PCI ID repository)."""


def model_of(gpu: Gpu) -> Model | None:
    """What is known of a GPU's model, by its name or else its compute capability."""
    if gpu.model is not None:
        for pattern, model in _MODELS:
            if re.search(pattern, gpu.model):
                return model
    if gpu.sm in _COMPUTE:
        return next(model for pattern, model in _MODELS if re.search(pattern, _COMPUTE[gpu.sm]))
    if gpu.sm in _WITHOUT_NVLINK:
        return Model(f"sm {gpu.sm}", 0, 0.0, _WITHOUT_NVLINK[gpu.sm])
    return None


def lane_rate(gpu: Gpu, lanes: int, widest: int) -> Rate:
    """Rate of one NVLink of this GPU, each way.

    Args:
        gpu: what is known of it.
        lanes: NVLinks seen at one GPU, which narrows the generation down where the model is unknown.
        widest: NVLinks seen to one peer.
    """
    model = model_of(gpu)
    if model is not None and model.lane:
        return Rate(model.lane, f"{model.name} data sheet", Confidence.INFERRED)
    if lanes <= 4 and widest == lanes:
        return Rate(14.0625 * GB, "bridge of unknown generation, the slowest (GA102)", Confidence.ASSUMED)
    if lanes <= 4:
        return Rate(20 * GB, "NVLink 1, the only generation with so few lanes to several peers", Confidence.INFERRED)
    if lanes <= 12:
        return Rate(25 * GB, "NVLink 2 to 4, which have one rate", Confidence.INFERRED)
    return Rate(25 * GB, "NVLink 4, the slowest generation with so many lanes", Confidence.ASSUMED)


def nominal_lane(raw_bytes_per_s: float) -> Rate:
    """Data rate of an NVLink whose signalling rate was read: 53.125 GB/s carry 50, 26.562 and 25.781 carry 25."""
    nominal = max((rate for rate in _LANES if rate <= raw_bytes_per_s * 1.03), default=raw_bytes_per_s)
    return Rate(nominal, f"{raw_bytes_per_s / GB:g} GB/s read per NVLink", Confidence.READ)


_LANES = (14.0625 * GB, 20 * GB, 25 * GB, 50 * GB, 100 * GB)


def pcie_rate(link: PcieLink, gpus: tuple[Gpu, ...] = (), lanes: int = 0) -> Rate:
    """Usable rate of a PCIe link, each way.

    Args:
        link: what was read; idle GPUs lower the generation, so the best both ends can do counts; where none was
            read, the following decide.
        gpus: the machine's GPUs, whose models imply a generation.
        lanes: NVLinks of one GPU, which date the machine: 18 came with PCIe 5.0, 8 and 12 with 4.0.
    """
    gts, width = link.most_gts or link.gts, (link.width or link.most_width) or 16
    if gts:
        known = min(PCIE_X16, key=lambda rate: abs(rate - gts))
        return Rate(PCIE_X16[known] * width / 16, f"{known:g} GT/s x{width}", Confidence.READ)
    models = [model.gts for gpu in gpus if (model := model_of(gpu)) is not None]
    if models:
        source = f"{min(models):g} GT/s x{width} of the GPU's model"
        return Rate(PCIE_X16[min(models)] * width / 16, source, Confidence.INFERRED)
    if lanes > 6:
        dated = 32.0 if lanes > 12 else 16.0
        source = f"{dated:g} GT/s x{width}, usual for GPUs with {lanes} NVLinks"
        return Rate(PCIE_X16[dated] * width / 16, source, Confidence.ASSUMED)
    return Rate(PCIE_X16[8.0] * width / 16, f"8 GT/s x{width}, the slowest usual", Confidence.ASSUMED)


def smp_rate(sockets: tuple[Socket, ...]) -> Rate:
    """Usable rate between two sockets, as NCCL's search assumes for the CPU; 10 GB/s where the CPU is unknown."""
    vendors = {socket.vendor for socket in sockets} - {None}
    models = [socket.model for socket in sockets if socket.model is not None]
    if vendors == {"AuthenticAMD"}:
        return Rate(16 * GB, "NCCL's rate for AMD sockets", Confidence.INFERRED)
    if vendors and next(iter(vendors)) in ("ppc64", "IBM"):
        return Rate(32 * GB, "NCCL's rate for Power9", Confidence.INFERRED)
    if vendors and next(iter(vendors)) in ("arm64", "ARM"):
        return Rate(6 * GB, "NCCL's rate for Arm sockets", Confidence.INFERRED)
    if vendors == {"GenuineIntel"} and models:
        newest = max(models)
        rate = 40.0 if newest >= 0xAD else 22.0 if newest >= 0x8F else 10.0 if newest >= 0x55 else 6.0
        return Rate(rate * GB, "NCCL's rate for this Intel generation", Confidence.INFERRED)
    return Rate(10 * GB, "NCCL's rate for Intel Skylake, a usual machine", Confidence.ASSUMED)


def nic_rate(nic: Nic, upstream: Rate) -> Rate:
    """What a NIC can carry: the slower of its ports and its PCIe link."""
    if nic.bytes_per_s and nic.bytes_per_s <= upstream.bytes_per_s:
        return Rate(nic.bytes_per_s, "port rate", Confidence.READ)
    return upstream
