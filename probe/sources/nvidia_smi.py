"""Anything ``nvidia-smi`` printed about topology, alone or in the middle of a pasted terminal session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from probe.facts import SWITCHED, Bundle, Facts, Gpu
from probe.findings import finding
from probe.rates import model_of
from probe.sources import p2p
from probe.sources.matrix import Table, find_tables
from probe.sources.nvlink import Status, read_status
from probe.sources.text import clean_lines
from probe.sources.topo_matrix import read_table
from synth.errors import CaptureError
from synth.topology import Finding
from synth.topology.model import abridge, natural_key

_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]+)\s*:\s+([A-Za-z][\w.-]*)(?:\s+->\s+\S+\s+(\S+))?")
_PCI = re.compile(r"\s*([0-9]{1,3})\s*,\s*(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*")
_GPU_LINE = re.compile(r"\s*GPU ([0-9]{1,3}): ([^()]+?)\s*(?:\(UUID: ([^)]*)\))?\s*")
_FOREIGN = (
    (re.compile(r"\bPPU[0-9]*\b|\bICN#|ppu-smi"), "a PPU tool's"),
    (re.compile(r"rocm-smi|amd-smi|\bXGMI\b"), "an AMD tool's"),
    (re.compile(r"\bNPU[0-9]+\b|npu-smi|\bHCCS\b"), "an NPU tool's"),
    (re.compile(r"\bMLU[0-9]+\b|\bcnmon\b"), "an MLU tool's"),
)
_WORDS = {
    "SYS": ("NUMA", "SMP", "socket", "QPI", "CPU"),
    "SOC": ("SMP", "socket", "QPI"),
    "PIX": ("PCIe", "PCI"),
    "NV#": ("NVLink",),
}


def read(text: str, *, subject: str = "nvidia-smi") -> Facts:
    """Facts of a text that holds output of ``nvidia-smi topo`` or ``nvidia-smi nvlink``, or CUDA's P2P samples.

    Raises:
        CaptureError: nothing in it is certain; the message says why.
    """
    lines = clean_lines(text, subject)
    for pattern, whose in _FOREIGN:
        if any(pattern.search(line) for line in lines):
            raise CaptureError(
                f"{subject}: is {whose} output, not nvidia-smi's; synth reads NVIDIA's matrix, NCCL's and RCCL's XML",
                subject=subject,
            )
    tables = find_tables(lines)
    peers = p2p.from_tables([table for table in tables if table.is_p2p])
    sample_peers, sample_gpus = p2p.from_lines(lines)
    peers |= sample_peers
    status = read_status(lines)
    facts = _matrix([table for table in tables if not table.is_p2p], subject)
    if facts is None:
        facts = _without_matrix(peers, sample_gpus, status, subject)
    facts = _with_names(_with_legend(facts, lines), lines)
    facts = _with_ports(replace(facts, peers=peers), status)
    return replace(facts, findings=facts.findings + tuple(_context(facts, lines, status, subject)))


def _matrix(matrices: Sequence[Table], subject: str) -> Facts | None:
    """The first matrix that can be read; another one that says other things leaves a finding."""
    read: list[Facts] = []
    errors: list[CaptureError] = []
    for table in matrices:
        try:
            read.append(read_table(table, subject))
        except CaptureError as error:
            errors.append(error)
    if not read:
        if errors:
            raise errors[0]
        return None
    first = read[0]
    if any(dict(other.paths) != dict(first.paths) for other in read[1:]):
        differ = finding("matrices-differ", subject, "the text holds several matrices that differ; the first is used")
        return replace(first, findings=(*first.findings, differ))
    return first


def _without_matrix(
    peers: dict[tuple[str, str], str], gpus: dict[str, Gpu], status: Sequence[Status], subject: str
) -> Facts:
    """What other commands say when there is no distance matrix: which GPUs there are, at least."""
    known = dict(gpus)
    for name in [name for pair in peers for name in pair] + [entry.name for entry in status]:
        known.setdefault(name, Gpu(name=name))
    if not known:
        raise CaptureError(
            f"{subject}: holds no matrix of nvidia-smi topo -m and no NVLink or P2P report; "
            "paste the output of nvidia-smi topo -m with its header line",
            subject=subject,
        )
    order = sorted(known, key=natural_key)
    source = "CUDA P2P samples" if gpus else "nvidia-smi nvlink" if status else "nvidia-smi topo -p2p"
    text = f"{source} does not say where {abridge(order)} are on PCIe; one host is assumed"
    return Facts(
        source=source,
        gpus=tuple(known[name] for name in order),
        hidden=not status,
        findings=(finding("placement-unknown", order[0], text),) if len(order) > 1 else (),
    )


def _with_legend(facts: Facts, lines: Sequence[str]) -> Facts:
    names: dict[str, str] = {}
    rails: dict[str, str] = {}
    for line in lines:
        if match := _NIC_LEGEND.match(line):
            names[match[1]] = match[2]
            if match[3]:
                rails[match[1]] = match[3]
    nics = tuple(replace(nic, device=names.get(nic.name, nic.device), subnet=rails.get(nic.name)) for nic in facts.nics)
    return replace(facts, nics=nics)


def _with_names(facts: Facts, lines: Sequence[str]) -> Facts:
    """Product names, UUIDs and bus ids, where other commands' output stands in the same text."""
    models: dict[str, tuple[str, str | None]] = {}
    buses: dict[str, str] = {}
    for line in lines:
        if match := _GPU_LINE.fullmatch(line):
            models.setdefault(f"GPU{match[1]}", (match[2], match[3]))
        elif match := _PCI.fullmatch(line):
            buses.setdefault(f"GPU{match[1]}", match[2].lower())
    gpus = []
    for gpu in facts.gpus:
        model, uuid = models.get(gpu.name, (gpu.model, gpu.uuid))
        uuid = uuid if uuid and uuid.startswith("GPU-") else gpu.uuid
        gpus.append(replace(gpu, model=model, uuid=uuid, pci=buses.get(gpu.name, gpu.pci)))
    return replace(facts, gpus=tuple(gpus))


def _with_ports(facts: Facts, status: Sequence[Status]) -> Facts:
    """NVLink ports, and the wires they prove where their far ends are listed or the model leaves no choice."""
    names = {gpu.name for gpu in facts.gpus}
    ports = {entry.name: entry.ports for entry in status if entry.name in names}
    facts = replace(facts, ports=ports)
    if facts.paths or not ports:
        return facts
    by_bus = {gpu.pci: gpu.name for gpu in facts.gpus if gpu.pci}
    lanes: dict[tuple[str, str], int] = {}
    for entry in status:
        for bus in entry.remotes.values():
            pair = entry.name, by_bus.get(bus, SWITCHED)
            lanes[pair] = lanes.get(pair, 0) + 1
    bundles = tuple(Bundle(gpu=gpu, peer=peer, lanes=count) for (gpu, peer), count in lanes.items() if gpu != peer)
    guessed = (
        not bundles
        and len(facts.gpus) == 8
        and all(
            (model := model_of(gpu)) is not None and model.switched and len(ports[gpu.name].up) == model.lanes
            for gpu in facts.gpus
            if gpu.name in ports
        )
    )
    if guessed:
        bundles = tuple(Bundle(gpu=name, peer=SWITCHED, lanes=len(entry.up)) for name, entry in ports.items())
    if bundles and not guessed:
        return replace(facts, bundles=bundles)
    active = [f"{name} ({len(entry.up)})" for name, entry in ports.items() if entry.up]
    how = "this model with eight GPUs always has NVSwitches" if guessed else "NVLink is left out"
    text = f"NVLinks of {abridge(active)} are up, but the text does not say where they lead; {how}"
    return (
        replace(
            facts,
            bundles=bundles,
            findings=(*facts.findings, finding("nvlink-peers-unknown", active[0].split()[0], text)),
        )
        if active
        else replace(facts, bundles=())
    )


def _context(facts: Facts, lines: Sequence[str], status: Sequence[Status], subject: str) -> list[Finding]:
    """What the words around the tables say: NVLink hidden on purpose, a strange legend, lists that were cut."""
    found: list[Finding] = []
    joined = "\n".join(lines)
    linked = any(path.lanes for path in facts.paths.values())
    legend = re.search(r"^\s*PIX\s*=", joined, re.M)
    if facts.paths and not linked and (re.search(r"topo\s+-mp\b", joined) or (legend and "NV#" not in joined)):
        found.append(finding("nvlink-hidden", subject, "the matrix was printed without NVLink (topo -mp)"))
    for word, expected in _WORDS.items():
        match = re.search(rf"^\s*{word}\s*=\s*(.+)$", joined, re.M)
        if match and not any(term.lower() in match[1].lower() for term in expected) and len(match[1]) > 12:
            found.append(finding("legend-foreign", subject, f"the legend explains {word} as {match[1][:60]!r}"))
    cards = re.search(r"RTX (?:[2-9]0[0-9]0|[2-8]000 Ada|PRO)[^\n,;)]{0,12}|\bL(?:4|20|40S?)\b", joined)
    if linked and cards and not any(gpu.model for gpu in facts.gpus):
        model = model_of(Gpu(name="", model=cards[0].strip()))
        if model is not None and model.lanes == 0:
            text = f"the matrix shows NVLink, but the text speaks of {cards[0].strip()}, which has none"
            found.append(finding("nvlink-impossible", facts.gpus[0].name, text))
    cut = [entry.name for entry in status if entry.cut]
    if cut:
        found.append(finding("text-elided", cut[0], f"the NVLink list of {abridge(cut)} is cut"))
    if any(entry.model is None for entry in status):
        found.append(finding("header-missing", subject, "the NVLink list names no GPU; one GPU is assumed"))
    return found
