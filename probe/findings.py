"""Every finding the probe can make: its stable code, how much it matters, and what to do about it.

``docs/findings.md`` is written from this table; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.topology import Finding, Severity

INFO, WARNING, ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR


@dataclass(frozen=True, slots=True)
class Code:
    """What one code means.

    Attributes:
        severity: how much it matters.
        meaning: what was seen.
        remedy: what to do.
    """

    severity: Severity
    meaning: str
    remedy: str


CODES: dict[str, Code] = {
    # what was lost or doubtful in a text
    "header-missing": Code(
        WARNING,
        "The matrix has no header line; GPU columns follow from the X cells, NIC columns are numbered in order.",
        "Paste the whole output of nvidia-smi topo -m.",
    ),
    "header-cut": Code(
        WARNING,
        "The header's beginning is lost; the rows prove which GPU columns it had.",
        "Paste the whole output of nvidia-smi topo -m.",
    ),
    "header-glued": Code(
        INFO, "Names in the header ran together and were taken apart.", "Nothing, where no other finding names them."
    ),
    "cells-glued": Code(
        INFO, "Cells ran together (NODENODE, NV120-31) and were taken apart.", "Nothing, where no doubt is reported."
    ),
    "columns-ambiguous": Code(
        WARNING,
        "Rows and header disagree in length, so cells after the first doubtful column cannot be assigned.",
        "Paste the output again as text with its tabs; the cells before the doubt were read.",
    ),
    "column-unknown": Code(
        WARNING, "The matrix has a column that nvidia-smi does not print.", "Leave out what another tool added."
    ),
    "rows-missing": Code(
        WARNING,
        "Devices of the header have no row, or only a part of one; their pairs come from the other rows.",
        "Paste the whole output.",
    ),
    "pairs-unread": Code(
        WARNING,
        "Some pairs stand in no row that was read; they are modelled like their siblings.",
        "Paste the whole output.",
    ),
    "text-elided": Code(
        WARNING, "The text was shortened with dots; what they stood for is not read.", "Paste the whole output."
    ),
    "matrix-asymmetric": Code(
        WARNING,
        "The two cells of one pair differ; the slower of the two is used.",
        "Run nvidia-smi topo -m again; a real output is symmetric.",
    ),
    "matrices-differ": Code(
        WARNING, "The text holds several matrices that differ; the first is used.", "Probe one machine at a time."
    ),
    "nvlink-hidden": Code(
        WARNING,
        "The source leaves NVLink out (topo -mp, or an XML that only places GPUs on PCI), so its absence says nothing.",
        "Add nvidia-smi topo -m, or probe on the machine.",
    ),
    "legend-foreign": Code(
        WARNING, "The legend says other things than nvidia-smi's own.", "Compare with the tool's real output."
    ),
    "xml-attribute": Code(
        WARNING, "An attribute of the XML has no usable value; the value that NCCL would assume is used.", "Correct it."
    ),
    # what is not known and had to be assumed
    "generation-unknown": Code(
        INFO,
        "The NVLink generation is not in the source; the slowest that fits the lane counts is assumed.",
        "Give the GPU's name with --gpu, or probe on the machine.",
    ),
    "wiring-unknown": Code(
        INFO,
        "Whether NVLinks are point to point or behind a switch cannot be told; both have the same rates here.",
        "Probe on the machine, or give NCCL's XML.",
    ),
    "nvlink-peers-unknown": Code(
        WARNING,
        "NVLinks are up but the source does not say where they lead.",
        "Add nvidia-smi topo -m, or probe on the machine.",
    ),
    "placement-unknown": Code(
        WARNING,
        "The source does not say where on PCIe the devices are; one host with the slowest usual rates is assumed.",
        "Add nvidia-smi topo -m.",
    ),
    "affinity-missing": Code(
        INFO,
        "CPU and NUMA affinity are not given (a container hides them); sockets follow from the distances.",
        "Probe outside the container to see NUMA nodes.",
    ),
    # contradictions
    "sources-disagree": Code(
        WARNING, "Two sources say different things of one fact; the more direct one is used.", "Check the device named."
    ),
    "nvlink-impossible": Code(
        ERROR,
        "The matrix shows NVLink on a GPU that has none.",
        "The text is not this machine's output: run nvidia-smi topo -m on it.",
    ),
    "too-many-lanes": Code(ERROR, "A GPU shows more NVLinks than its generation has.", "Run nvidia-smi topo -m again."),
    "distance-contradiction": Code(
        WARNING,
        "Distances contradict one another or the NUMA nodes (such as PHB between two NUMA nodes).",
        "A virtual machine or firmware invents the tree; measure (--measure) before relying on PCIe rates.",
    ),
    "all-sys": Code(
        WARNING,
        "Every pair is SYS even inside one NUMA node, so the class cannot tell near from far; NUMA is used instead.",
        "Choose GPUs by NUMA node; check ACS, and whether the hypervisor hides the PCIe tree.",
    ),
    "self-link": Code(
        ERROR,
        "An NVLink's target is the GPU itself; it is not counted.",
        "Correct the file: the target must be the peer's bus id. synth topo writes a corrected NCCL XML.",
    ),
    "one-way-link": Code(
        WARNING, "An NVLink is listed at one end only; it is taken as both ways.", "Correct the file."
    ),
    "target-unknown": Code(
        WARNING,
        "An NVLink's target is no device of the file; it is taken as an invisible switch.",
        "Add the missing device or correct the bus id.",
    ),
    "cpu-masks-overlap": Code(
        WARNING, "CPU masks of two NUMA nodes overlap.", "Correct the affinity masks of the file; pinning would clash."
    ),
    "virtual-interfaces": Code(
        INFO, "Virtual network interfaces (bridges, tunnels, containers) are no NICs; they are left out.", "Nothing."
    ),
    "device-missing": Code(
        WARNING,
        "The file names a device that this machine does not have, or the other way round.",
        "Correct the bus ids; in a virtual machine they differ from the host's.",
    ),
    # what is wrong with the machine
    "nvlink-down": Code(ERROR, "NVLinks of this GPU are inactive.", "Check cabling, bridges and the fabric manager."),
    "nvlink-fewer": Code(
        WARNING, "This GPU or pair has fewer NVLinks than its siblings or its model.", "Reseat the bridge or the GPU."
    ),
    "nvlink-mesh-partial": Code(
        INFO,
        "NVLink does not join every pair; the pairs without it use PCIe.",
        "Do not assume a full mesh; synth plans around the missing pairs.",
    ),
    "gpu-outside-fabric": Code(
        ERROR,
        "One GPU has no NVLink although its siblings do.",
        "Check fabric registration and reset that GPU; plan without it (--ranks) until then.",
    ),
    "fabric-not-ready": Code(
        ERROR,
        "The NVLink fabric is not initialised, so NVLink cannot be used.",
        "Start the fabric manager (on the host, for a virtual machine) and check nvidia-smi -q for Fabric State.",
    ),
    "fabric-remote-unknown": Code(
        INFO,
        "NVLinks report an all-ones remote id: they end in a switch that is not visible, not in one more domain.",
        "Nothing: the domain follows from the fabric's cluster and clique.",
    ),
    "fabric-split": Code(
        WARNING, "GPUs of this machine belong to different NVLink cliques.", "Check the fabric's partitions."
    ),
    "p2p-disabled": Code(
        WARNING,
        "The platform does not let these GPUs reach each other directly.",
        "Check ACS, IOMMU and the driver; traffic goes through host memory until then.",
    ),
    "p2p-unsupported": Code(
        INFO, "These GPUs do not support direct access.", "Nothing: the driver offers it on other models only."
    ),
    "p2p-without-nvlink": Code(
        INFO,
        "Direct access works over PCIe on all pairs, but there is no NVLink.",
        "Expect engines to use NCCL: their own all-reduce needs NVLink above two GPUs.",
    ),
    "peer-limit": Code(
        INFO, "More GPUs than one GPU can map as peers.", "Plan direct links within groups of nine at most."
    ),
    "acs-enabled": Code(
        WARNING,
        "Access control services are on at this bridge, so peer traffic goes through the root complex.",
        "Turn ACS off in firmware or with setpci where no virtual machine needs it.",
    ),
    "iommu-translating": Code(
        INFO,
        "The IOMMU translates this GPU's addresses, which can slow or prevent direct access between GPUs.",
        "Boot with iommu=pt, or turn the IOMMU off, where no virtual machine needs it.",
    ),
    "pcie-degraded": Code(
        WARNING,
        "A PCIe link runs narrower or at a lower generation than both ends can.",
        "Reseat the card; idle GPUs also lower the generation, so look again under load.",
    ),
    "virtual-machine": Code(
        INFO,
        "The PCIe tree is a virtual machine's and may not be the real one.",
        "Use the provider's topology file (NCCL_TOPO_FILE), or measure.",
    ),
    "mig-enabled": Code(ERROR, "MIG is on; its slices have no NVLink and no P2P.", "Turn MIG off for collectives."),
    "confidential-mode": Code(
        INFO, "Confidential computing is on; host transfers are encrypted and slower.", "Measure before planning."
    ),
    "gpu-hidden": Code(
        INFO, "A GPU is known but not visible from here (another container's).", "Merge the other containers' reports."
    ),
    "nic-down": Code(ERROR, "A NIC's port is not active.", "Check the cable and the switch port."),
    "nic-slow": Code(WARNING, "A NIC runs below its best rate.", "Check cable, port and firmware settings."),
    "nic-far": Code(WARNING, "A NIC is near no GPU.", "Leave it out of NCCL_IB_HCA for GPU traffic."),
    "nic-shared": Code(
        INFO, "Several GPUs share one NIC.", "Count each rank with its part of the NIC's rate, not with the whole."
    ),
    "gpu-without-nic": Code(
        WARNING, "A GPU has no near NIC and must share or relay.", "Relay over NVLink to a GPU that has one."
    ),
    "rails-uneven": Code(
        WARNING,
        "GPUs do not have the same NIC bandwidth.",
        "Use the assignment that synth prints instead of index order.",
    ),
    "rails-crossed": Code(
        WARNING,
        "Two machines number or wire their rails differently.",
        "Set NCCL_IB_HCA per machine from the printed assignment.",
    ),
    "network-assumed": Code(
        WARNING,
        "The description gives no rates between switches; they are taken as non-blocking.",
        "Describe the network with oversubscription, or give ibnetdiscover's output.",
    ),
    "rails-isolated": Code(
        INFO, "Rails are not routed to each other.", "Plans keep rail i to rail i and relay inside the machine."
    ),
    "memory-numa": Code(
        INFO,
        "GPU memory forms NUMA nodes of its own, without CPUs.",
        "Bind processes by CPU affinity, not to that node.",
    ),
    "lone-gpu": Code(INFO, "There is one GPU only, so no link between GPUs.", "Merge several machines into a cluster."),
    # measuring
    "link-below-claim": Code(
        ERROR, "A link measured far below its claim; the measured rate is used.", "Check the link named."
    ),
    "data-corrupt": Code(
        ERROR,
        "Bytes arrived wrong while measuring; the pair must not be used.",
        "Avoid P2P on this pair; test the GPUs.",
    ),
    "measure-skipped": Code(INFO, "A measurement was left out; the message says why.", "Nothing, or raise the limits."),
    "driver-slow": Code(
        WARNING, "The driver took long to answer.", "Turn persistence mode on; a partly seated bridge does this too."
    ),
    "source-failed": Code(INFO, "A source could not be read; the others were used.", "The message says why."),
}


def finding(code: str, subject: str, message: str, severity: Severity | None = None) -> Finding:
    """One finding; its severity is the code's own unless a milder or graver one is given."""
    return Finding(code=code, severity=severity or CODES[code].severity, subject=subject, message=message)


_INTRODUCTION = """# Findings

What the probe notices about a capture or a machine. Codes are stable: scripts may match them. A finding names the
device, link or source at fault in `subject` and says in `message` what was seen. The severity given here is the usual
one; where a case is milder or graver than usual, the finding carries that.

Written by `python -c 'import probe.findings as f; print(f.markdown(), end="")' > docs/findings.md`.

| code | severity | what was seen | what to do |
|---|---|---|---|
"""


def markdown() -> str:
    """The content of ``docs/findings.md``."""
    rows = [f"| `{code}` | {told.severity.value} | {told.meaning} | {told.remedy} |\n" for code, told in CODES.items()]
    return _INTRODUCTION + "".join(rows)
