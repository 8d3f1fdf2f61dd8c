"""What a description says about a network: which switch each NIC hangs on, and how switches are joined."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from synth.errors import CaptureError

MAX_NODES = 100_000


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network, before the nodes on it are known.

    Attributes:
        source: what described it.
        leaves: node -> the switch that all its NICs hang on.
        ports: (node, NIC device such as ``mlx5_0``) -> its switch, where NICs differ.
        rails: names of the switches that NIC 0, 1, ... of every node hang on; empty unless rails.
        parents: switch -> the switch above it.
        uplinks: switch -> rate of all its links to the switch above, in bytes per second, where it is known.
        nodes_per_leaf: for descriptions that only count: so many nodes share a leaf, in the order of the nodes.
        default: the switch of nodes that nothing else places; None refuses them.
        domains: node -> NVLink domain that spans nodes.
        bytes_per_s: of a NIC's link; 0 takes what the NIC can do.
        latency_ns: of a NIC's link.
        oversubscription: rate below a leaf over the rate above it, where ``uplinks`` does not say; 0 unknown.
    """

    source: str
    leaves: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], str] = field(default_factory=dict)
    rails: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    uplinks: Mapping[str, float] = field(default_factory=dict)
    nodes_per_leaf: int = 0
    default: str | None = None
    domains: Mapping[str, str] = field(default_factory=dict)
    bytes_per_s: float = 0.0
    latency_ns: float = 1300.0
    oversubscription: float = 0.0


def expand_hosts(text: str, subject: str) -> list[str]:
    """Names of a host list such as ``srv[1101-1103,1107],login1``.

    Raises:
        CaptureError: it is ill-formed or names more hosts than any cluster has.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        words = [""]
        for piece in re.findall(r"\[[^\[\]]*\]|[^\[\]]+", part.strip()):
            choices = _range(piece, subject) if piece.startswith("[") else [piece]
            words = [word + choice for word in words for choice in choices]
            if len(words) + len(names) > MAX_NODES:
                raise CaptureError(f"{subject}: names more than {MAX_NODES} nodes", subject=subject)
        names += words
    return [name for name in names if name]


def _range(piece: str, subject: str) -> list[str]:
    choices: list[str] = []
    for part in piece[1:-1].split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if match is None or (match[2] and int(match[2]) - int(match[1]) >= MAX_NODES):
            raise CaptureError(
                f"{subject}: {piece[:40]!r} is no host range; write [1-4,7] with numbers", subject=subject
            )
        last = int(match[2] or match[1])
        choices += [str(number).rjust(len(match[1]), "0") for number in range(int(match[1]), last + 1)]
    return choices
