"""Who can reach whom directly: ``topo -p2p`` matrices, and the lines of CUDA's sample programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe.facts import Gpu
from probe.sources.matrix import STATUSES, Table

_SIMPLE = re.compile(r"Peer access from (.+?) \(GPU([0-9]{1,3})\) -> (.+?) \(GPU([0-9]{1,3})\) ?: (Yes|No)\b")
_CAN = re.compile(r"Device=([0-9]{1,3}) (CAN|CANNOT) Access Peer Device=([0-9]{1,3})")
_DEVICE = re.compile(
    r"Device: ([0-9]{1,3}), (.+?), pciBusID: ([0-9a-fA-F]{1,2}), pciDeviceID: ([0-9a-fA-F]{1,2}), "
    r"pciDomainID: ?([0-9a-fA-F]{1,4})"
)
_CAPABILITY = re.compile(r"p2p\s+-?([rwnap])\b\s*$")
_PREFERENCE = "rw nap"
"""Reads first: what a receiver-driven copy needs; an unnamed capability is taken as reads."""


def from_tables(tables: Sequence[Table]) -> dict[tuple[str, str], str]:
    """(gpu, gpu) ordered -> status of the most telling matrix: reads, writes, unnamed, NVLink, atomics, PCIe."""
    best: dict[tuple[str, str], str] = {}
    for table in sorted(tables, key=_rank):
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=False):
                if cell in STATUSES and column != row.label:
                    best.setdefault((row.label, column), cell)
    return best


def _rank(table: Table) -> int:
    match = _CAPABILITY.search(table.hint.strip())
    return _PREFERENCE.index(match[1]) if match else _PREFERENCE.index(" ")


def from_lines(lines: Sequence[str]) -> tuple[dict[tuple[str, str], str], dict[str, Gpu]]:
    """Statuses and GPUs of simpleP2P's and p2pBandwidthLatencyTest's lines; CUDA's order of GPUs."""
    peers: dict[tuple[str, str], str] = {}
    gpus: dict[str, Gpu] = {}
    for line in lines:
        if match := _SIMPLE.search(line):
            a, b = f"GPU{match[2]}", f"GPU{match[4]}"
            gpus.setdefault(a, Gpu(name=a, model=match[1]))
            gpus.setdefault(b, Gpu(name=b, model=match[3]))
            peers[a, b] = "OK" if match[5] == "Yes" else "NS"
        elif match := _CAN.search(line):
            a, b = f"GPU{match[1]}", f"GPU{match[3]}"
            peers[a, b] = "OK" if match[2] == "CAN" else "NS"
        elif match := _DEVICE.search(line):
            name = f"GPU{match[1]}"
            bus = f"{match[5].rjust(4, '0')}:{match[3].rjust(2, '0')}:{match[4].rjust(2, '0')}.0".lower()
            gpus[name] = Gpu(name=name, model=match[2], pci=bus)
    for pair in peers:
        for name in pair:
            gpus.setdefault(name, Gpu(name=name))
    return peers, gpus
