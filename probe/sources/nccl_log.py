"""The path table that NCCL prints with ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH``."""

from __future__ import annotations

import re

from probe.facts import Distance, Facts, Gpu, Path
from probe.findings import finding
from probe.sources.text import clean_lines
from synth.errors import CaptureError

_ROW = re.compile(r"GPU/([0-9A-Fa-f]+-)?([0-9A-Fa-f]{4,7}) ?:(.*)")
_ENTRY = re.compile(r"GPU/(?:[0-9A-Fa-f]+-)?([0-9A-Fa-f]{4,7}) \(([0-9]+)/([0-9.]+)/([A-Z0-9]+)\)")
_CLASS = {"PIX": Distance.PIX, "PXB": Distance.PXB, "PXN": Distance.PXB, "PHB": Distance.PHB, "SYS": Distance.SYS}


def present(text: str) -> bool:
    """Whether a text holds such a table."""
    return bool(re.search(r"GPU/(?:[0-9A-Fa-f]+-)?[0-9A-Fa-f]{4,7} ?:GPU/", text))


def read(text: str, *, subject: str = "nccl-log") -> Facts:
    """GPUs and PCIe distances of the table; pairs whose row was cut stay unread.

    Raises:
        CaptureError: there is no complete line of the table.
    """
    paths: dict[tuple[str, str], Path] = {}
    buses: dict[str, None] = {}
    nvlink = False
    for line in clean_lines(text, subject):
        row = _ROW.search(line)
        entries = _ENTRY.findall(row[3]) if row else []
        if row is None or not entries:
            continue
        source = row[2].lower()
        buses.setdefault(source)
        for target, _hops, _rate, kind in entries:
            buses.setdefault(target.lower())
            nvlink |= kind in ("NVL", "NVB")
            if kind in _CLASS and target.lower() != source:
                paths.setdefault((source, target.lower()), Path(distance=_CLASS[kind]))
    if len(buses) < 1 or (len(buses) > 1 and not paths and not nvlink):
        raise CaptureError(f"{subject}: holds no complete line of NCCL's path table", subject=subject)
    order = sorted(buses, key=lambda bus: int(bus, 16))
    names = {bus: f"GPU{number}" for number, bus in enumerate(order)}
    pairs: dict[tuple[str, str], Path] = {}
    for (a, b), path in paths.items():
        pairs.setdefault(tuple(sorted((names[a], names[b]), key=lambda name: int(name[3:]))), path)  # type: ignore[arg-type]
    findings = []
    if nvlink:
        findings.append(
            finding("nvlink-hidden", subject, "NCCL's path table shows NVLink without lane counts; NVLink is left out")
        )
    if len(pairs) < len(order) * (len(order) - 1) // 2 and not nvlink:
        findings.append(finding("rows-missing", subject, "NCCL's path table is cut; some pairs were not read"))
    return Facts(
        source="NCCL graph log",
        gpus=tuple(Gpu(name=names[bus], pci=_bus_id(bus)) for bus in order),
        paths=pairs,
        hidden=nvlink,
        findings=tuple(findings),
    )


def _bus_id(number: str) -> str:
    """NCCL prints bus ids as one number: domain, bus, device, function without separators."""
    value = int(number, 16)
    return f"{value >> 20:04x}:{value >> 12 & 255:02x}:{value >> 4 & 255:02x}.{value & 15:x}"
