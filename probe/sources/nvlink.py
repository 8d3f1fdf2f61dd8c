"""``nvidia-smi nvlink``: status (``-s``), capabilities (``-c``) and remote ends (``-R``) of each GPU's ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from probe.facts import Ports
from probe.sources.pci import bus_id

_GPU = re.compile(r"\s*GPU ([0-9]{1,3}): ([^()]+?)\s*(?:\(UUID: ([^)]*)\))?\s*")
_SPEED = re.compile(r"\s*Link ([0-9]{1,3}): (?:([0-9]{1,4}(?:\.[0-9]{1,6})?) GB/s|<?inactive>?)\s*", re.I)
_REMOTE = re.compile(
    r"\s*Link ([0-9]{1,3}): Remote Device ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]): Link .*"
)
_CAPABILITY = re.compile(r"\s*Link ([0-9]{1,3}), ([A-Za-z0-9 ]+?)(?: is)? supported: (true|false)\s*", re.I)
_ELISION = re.compile(r"\s*(?:\.{2,}|…|\[snip\])\s*", re.I)


@dataclass(slots=True)
class Status:
    """What the text says of one GPU.

    Attributes:
        name: ``GPU0``.
        model: product name, None without a heading.
        uuid: as printed.
        up: active ports.
        down: inactive ports.
        speed: rate of one active port in GB/s; 0 not said.
        capable: ports whose capabilities are listed.
        remotes: port -> bus id at its far end.
        cut: the list ends early.
    """

    name: str
    model: str | None = None
    uuid: str | None = None
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    speed: float = 0.0
    capable: list[int] = field(default_factory=list)
    remotes: dict[int, str] = field(default_factory=dict)
    cut: bool = False

    @property
    def ports(self) -> Ports:
        """The ports as a fact; capabilities alone count a port as there and active."""
        up = self.up or sorted(set(self.remotes) | (set(self.capable) - set(self.down)))
        return Ports(
            up=tuple(up),
            down=tuple(self.down),
            raw_bytes_per_s=self.speed * 1e9,
            complete=not self.cut and bool(self.up or self.down),
        )


def read_status(lines: Sequence[str]) -> list[Status]:
    """Every GPU of the text that has at least one port line."""
    found: dict[str, Status] = {}
    current: Status | None = None
    headings = any(_GPU.fullmatch(line) for line in lines)
    for line in lines:
        if match := _GPU.fullmatch(line):
            name = f"GPU{match[1]}"
            current = found.setdefault(name, Status(name, match[2], match[3]))
        elif port := _SPEED.fullmatch(line) or _REMOTE.fullmatch(line) or _CAPABILITY.fullmatch(line):
            if current is None and not headings:
                current = found.setdefault("GPU0", Status("GPU0"))
            if current is not None:  # lines before the first heading belong to a GPU that was cut away
                _take(current, port)
        elif current is not None and _ELISION.fullmatch(line):
            current.cut = True
            current = None if headings else current
        elif current is not None and re.match(r"\s*Link [0-9]+", line):
            current.cut = True
    status = [entry for entry in found.values() if entry.up or entry.down or entry.capable or entry.remotes]
    longest = max((len(entry.up) + len(entry.down) for entry in status), default=0)
    for entry in status:
        entry.cut |= 0 < len(entry.up) + len(entry.down) < longest
    return status


def _take(status: Status, match: re.Match[str]) -> None:
    port = int(match[1])
    if match.re is _REMOTE:
        status.remotes[port] = bus_id(match[2])
    elif match.re is _CAPABILITY:
        if port not in status.capable:
            status.capable.append(port)
    elif match[2] is None:
        status.down.append(port)
    else:
        status.up.append(port)
        status.speed = max(status.speed, float(match[2]))
