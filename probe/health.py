"""What is wrong with a machine, read off its facts; NVLink that cannot be used is taken out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from probe.facts import SWITCHED, Bundle, Facts
from probe.findings import finding
from probe.rates import model_of
from synth.topology import Finding, Severity
from synth.topology.model import abridge

PEER_LIMIT = 8
"""Peers that CUDA lets one device map without NVSwitch."""


def check(facts: Facts) -> Facts:
    """The facts with a finding for each fault, and without links that do not work."""
    bundles, fabric = _fabric(facts, facts.bundles or ())
    bundles, ports = _ports(facts, bundles)
    found = [*fabric, *ports, *_lanes(facts, bundles), *_peers(facts, bundles), *_pcie(facts), *_nics(facts)]
    if len(facts.gpus) == 1:
        found.append(finding("lone-gpu", facts.gpus[0].name, "there is one GPU only, so no link between GPUs"))
    return replace(facts, bundles=tuple(bundles), findings=facts.findings + tuple(found))


def _fabric(facts: Facts, bundles: Sequence[Bundle]) -> tuple[list[Bundle], list[Finding]]:
    """Without a completed fabric no packet passes an NVSwitch, whatever the links' state says."""
    unready = {name: state for name, (state, _, _) in facts.fabric.items() if state != "completed"}
    found = [
        finding(
            "fabric-not-ready",
            name,
            f"the NVLink fabric of {name} is {state}; its NVLinks into the switch are not used",
        )
        for name, state in unready.items()
    ]
    cliques = {(cluster, clique) for state, cluster, clique in facts.fabric.values() if state == "completed"}
    if len(cliques) > 1:
        text = f"the GPUs belong to {len(cliques)} NVLink cliques; NVLink does not join them"
        found.append(finding("fabric-split", next(iter(facts.fabric)), text))
    kept = [bundle for bundle in bundles if not (bundle.gpu in unready and bundle.peer.startswith(SWITCHED))]
    return kept, found


def _ports(facts: Facts, bundles: Sequence[Bundle]) -> tuple[list[Bundle], list[Finding]]:
    """Inactive ports, and bundles that claim more lanes than ports are up."""
    found: list[Finding] = []
    most = max((len(ports.up) for ports in facts.ports.values()), default=0)
    up: dict[str, int] = {}
    for gpu in facts.gpus:
        ports = facts.ports.get(gpu.name)
        if ports is None or not ports.complete:
            continue
        model = model_of(gpu)
        usual = model is not None and 0 < model.lanes <= len(ports.up)
        if ports.down:
            listed = abridge(ports.down)
            text = f"NVLinks {listed} of {gpu.name} are inactive ({len(ports.up)} are active)"
            if usual or not ports.up:
                note = "which is usual for this model" if usual else "as without a bridge"
                found.append(finding("nvlink-down", gpu.name, f"{text}, {note}", Severity.INFO))
            else:
                found.append(finding("nvlink-down", gpu.name, text))
        elif 0 < len(ports.up) < most:
            text = f"{gpu.name} has {len(ports.up)} active NVLinks, its siblings have {most}"
            found.append(finding("nvlink-fewer", gpu.name, text))
        up[gpu.name] = len(ports.up)
    capped = [
        replace(bundle, lanes=min(bundle.lanes, up[bundle.gpu]))
        if bundle.peer.startswith(SWITCHED) and up.get(bundle.gpu)
        else bundle
        for bundle in bundles
    ]
    return capped, found


def _lanes(facts: Facts, bundles: Sequence[Bundle]) -> list[Finding]:
    """Fewer lanes than the model has, where nothing else explains it."""
    found = []
    total: Counter[str] = Counter()
    for bundle in bundles:
        total[bundle.gpu] += 0 if bundle.chip else bundle.lanes
    for gpu in facts.gpus:
        lanes, model = total[gpu.name], model_of(gpu)
        told = facts.ports.get(gpu.name)
        if not lanes or (told is not None and told.down):
            continue
        if model is not None and 0 < lanes < model.lanes and len(facts.gpus) > 1 and not _shows_part(facts):
            text = f"{gpu.name} ({gpu.model}) shows {lanes} of {model.lanes} NVLinks; a bridge may be partly seated"
            found.append(finding("nvlink-fewer", gpu.name, text))
        elif model is None and lanes == 3 and len(facts.gpus) == 2:
            text = f"{gpu.name} shows 3 NVLinks, but bridges have 2 or 4; the bridge may be partly seated"
            found.append(finding("nvlink-fewer", gpu.name, text))
    return found


def _shows_part(facts: Facts) -> bool:
    """Whether GPUs that NVLink leads to may be missing from the report (a container with some of the GPUs)."""
    direct = [bundle for bundle in facts.bundles or () if not bundle.peer.startswith(SWITCHED)]
    return bool(direct) and len(facts.gpus) not in (2, 4, 8, 16)


def _peers(facts: Facts, bundles: Sequence[Bundle]) -> list[Finding]:
    linked = {(bundle.gpu, bundle.peer) for bundle in bundles}
    switched = {bundle.gpu for bundle in bundles if bundle.peer.startswith(SWITCHED)}
    by_status: dict[str, list[str]] = {}
    for (a, b), status in facts.peers.items():
        joined = (a, b) in linked or {a, b} <= switched
        if status not in ("OK", "U") and not joined and (b, a) not in linked:
            pairs = by_status.setdefault(status, [])
            if f"{b}-{a}" not in pairs:
                pairs.append(f"{a}-{b}")
    found = []
    reasons = {
        "CNS": ("p2p-disabled", "the chipset does not support it"),
        "TNS": ("p2p-disabled", "the PCIe topology does not support it"),
        "DR": ("p2p-disabled", "the driver is told not to"),
        "GNS": ("p2p-unsupported", "the GPU does not support it"),
        "NS": ("p2p-unsupported", "it is not supported"),
    }
    for status, pairs in by_status.items():
        code, reason = reasons[status]
        found.append(finding(code, pairs[0], f"no direct access on {abridge(pairs)}: {reason} ({status})"))
    names = [gpu.name for gpu in facts.gpus]
    everywhere = len(names) > 2 and all(facts.peers.get((a, b)) == "OK" for a in names for b in names if a != b)
    if everywhere and not linked and not facts.hidden:
        text = (
            "all pairs have direct access over PCIe but no NVLink; engines turn their own all-reduce off above two "
            "such GPUs and use NCCL"
        )
        found.append(finding("p2p-without-nvlink", names[0], text))
    if len(names) > PEER_LIMIT + 1 and not switched:
        text = f"{len(names)} GPUs without NVSwitch: CUDA lets one GPU map at most {PEER_LIMIT} peers"
        found.append(finding("peer-limit", names[0], text))
    return found


def _pcie(facts: Facts) -> list[Finding]:
    found = []
    for device in facts.devices:
        link = device.pcie
        if 0 < link.width < link.most_width:
            text = f"the PCIe link of {device.name} runs with {link.width} of {link.most_width} lanes"
            found.append(finding("pcie-degraded", device.name, text))
        elif 0 < link.gts < link.most_gts:
            text = f"the PCIe link of {device.name} runs at {link.gts:g} of {link.most_gts:g} GT/s, as idle GPUs do"
            found.append(finding("pcie-degraded", device.name, text, Severity.INFO))
    return found


def _nics(facts: Facts) -> list[Finding]:
    found = []
    rates = [nic.bytes_per_s for nic in facts.nics if nic.rdma and nic.bytes_per_s]
    usual = Counter(rates).most_common(1)[0][0] if rates else 0.0
    for nic in facts.nics:
        name = f"{nic.name} ({nic.device})" if nic.device else nic.name
        if nic.state not in (None, "active"):
            found.append(finding("nic-down", nic.name, f"the port of {name} is {nic.state}"))
        elif nic.rdma and 0 < nic.bytes_per_s < max(usual, nic.most_bytes_per_s):
            best = max(usual, nic.most_bytes_per_s) * 8 / 1e9
            text = f"{name} runs at {nic.bytes_per_s * 8 / 1e9:g} Gb/s, not at {best:g}"
            found.append(finding("nic-slow", nic.name, text))
    return found
