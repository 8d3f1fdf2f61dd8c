"""Anything ``nvidia-smi`` printed about topology, alone or in the middle of a pasted terminal session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from probe.facts import Facts, Gpu, Nic
from probe.findings import finding
from probe.sources.matrix import Table, find_tables
from probe.sources.text import clean_lines
from probe.sources.topo_matrix import read_table
from synth.errors import CaptureError
from synth.topology import Finding

_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]+)\s*:\s+([A-Za-z][\w.-]*)(?:\s+->\s+(\S+)\s+(\S+))?")
_PCI = re.compile(r"\s*([0-9]{1,3})\s*,\s*(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*")
_GPU_LINE = re.compile(r"\s*GPU ([0-9]{1,3}): ([^()]+?)\s*(?:\(UUID: ([^)]*)\))?\s*")
_FOREIGN = (
    (re.compile(r"\bPPU[0-9]*\b|\bICN#|ppu-smi", re.I), "a PPU tool's"),
    (re.compile(r"rocm-smi|amd-smi|XGMI\b.*\bhops", re.I), "an AMD tool's"),
    (re.compile(r"\bNPU[0-9]+\b|npu-smi|HCCS", re.I), "an NPU tool's"),
    (re.compile(r"\bMLU[0-9]+\b|cnmon", re.I), "an MLU tool's"),
)


def read(text: str, *, subject: str = "nvidia-smi") -> Facts:
    """Facts of a text that holds output of ``nvidia-smi topo`` or ``nvidia-smi nvlink``.

    Raises:
        CaptureError: nothing in it is certain; the message says why.
    """
    lines = clean_lines(text, subject)
    tables = find_tables(lines)
    _refuse_foreign(lines, subject)
    matrices = [table for table in tables if not table.is_p2p]
    if not matrices:
        raise CaptureError(
            f"{subject}: holds no matrix of nvidia-smi topo -m; paste its output with the header line", subject=subject
        )
    facts = _first_matrix(matrices, subject)
    facts = _with_legend(facts, lines)
    facts = _with_names(facts, lines)
    return replace(facts, findings=facts.findings + tuple(_context(facts, lines, subject)))


def _refuse_foreign(lines: Sequence[str], subject: str) -> None:
    for pattern, whose in _FOREIGN:
        if any(pattern.search(line) for line in lines):
            raise CaptureError(
                f"{subject}: is {whose} output, not nvidia-smi's; synth reads NVIDIA's matrix, NCCL's and RCCL's XML",
                subject=subject,
            )


def _first_matrix(matrices: Sequence[Table], subject: str) -> Facts:
    """The first matrix that can be read; another one that says other things leaves a finding."""
    read: list[Facts] = []
    errors: list[CaptureError] = []
    for table in matrices:
        try:
            read.append(read_table(table, subject))
        except CaptureError as error:
            errors.append(error)
    if not read:
        raise errors[0]
    first = read[0]
    if any(other.gpus and dict(other.paths) != dict(first.paths) for other in read[1:]):
        differ = finding("matrices-differ", subject, "the text holds several matrices that differ; the first is used")
        return replace(first, findings=(*first.findings, differ))
    return first


def _with_legend(facts: Facts, lines: Sequence[str]) -> Facts:
    names = {match[1]: match[2] for line in lines if (match := _NIC_LEGEND.match(line))}
    nics = tuple(replace(nic, device=names.get(nic.name, nic.device)) for nic in facts.nics)
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
    gpus = tuple(
        replace(
            gpu,
            model=models.get(gpu.name, (gpu.model, None))[0],
            uuid=_uuid(models.get(gpu.name, ("", None))[1]) or gpu.uuid,
            pci=buses.get(gpu.name, gpu.pci),
        )
        for gpu in facts.gpus
    )
    return replace(facts, gpus=gpus)


def _uuid(text: str | None) -> str | None:
    return text if text and text.startswith("GPU-") else None


def _context(facts: Facts, lines: Sequence[str], subject: str) -> list[Finding]:
    return []


__all__ = ["Facts", "Gpu", "Nic", "read"]
