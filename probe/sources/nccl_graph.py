"""NCCL's graph XML (``NCCL_GRAPH_DUMP_FILE``): the rings and trees its search found, read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from probe.sources.xml_tree import Element, parse
from synth.errors import CaptureError

PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet direct"}
"""NCCL's numbers for what a graph is for."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One stop of a channel: ``gpu`` or ``net`` and its device number."""

    kind: str
    dev: int


@dataclass(frozen=True, slots=True)
class Graph:
    """One search result.

    Attributes:
        id: its number.
        pattern: see ``PATTERNS``.
        channels: the stops of each channel, in order.
        attributes: everything else, as written (``speedintra``, ``typeinter``, ...).
    """

    id: int
    pattern: int
    channels: tuple[tuple[Hop, ...], ...]
    attributes: dict[str, str] = field(default_factory=dict)


def read(text: str | bytes, *, subject: str = "nccl-graph") -> tuple[Graph, ...]:
    """The graphs of a file.

    Raises:
        CaptureError: it is ill-formed (with line and column), or no graph file.
    """
    root = parse(text, subject)
    if root.tag != "graphs":
        raise CaptureError(f"{subject}: the root is <{root.tag}>; NCCL's graph file has <graphs>", subject=subject)
    return tuple(_graph(element, subject) for element in root.children if element.tag == "graph")


def _graph(element: Element, subject: str) -> Graph:
    channels = tuple(
        tuple(Hop(hop.tag, _number(hop, "dev", subject)) for hop in channel.children if hop.tag in ("gpu", "net"))
        for channel in element.children
        if channel.tag == "channel"
    )
    rest = {key: value for key, value in element.attributes.items() if key not in ("id", "pattern", "nchannels")}
    return Graph(_number(element, "id", subject), _number(element, "pattern", subject), channels, rest)


def _number(element: Element, key: str, subject: str) -> int:
    """A device number; NCCL mixes decimal with hexadecimal."""
    text = element.attributes.get(key, "")
    if not re.fullmatch(r"-?(?:0x[0-9a-fA-F]{1,15}|[0-9]{1,15})", text):
        raise CaptureError(
            f"{subject}: line {element.line}: <{element.tag}> has {key}={text!r}; must be a number", subject=subject
        )
    return int(text, 16 if "x" in text else 10)


def write(graphs: Sequence[Graph]) -> str:
    """The graphs as a file that NCCL loads with ``NCCL_GRAPH_FILE``."""
    rows = ['<graphs version="1">']
    for graph in graphs:
        values = {"id": graph.id, "pattern": graph.pattern, "nchannels": len(graph.channels)} | graph.attributes
        words = " ".join(f"{key}={quoteattr(str(value))}" for key, value in values.items())
        rows.append(f"  <graph {words}{'' if graph.channels else '/'}>")
        for channel in graph.channels:
            rows += ["    <channel>", *(f'      <{hop.kind} dev="{hop.dev}"/>' for hop in channel), "    </channel>"]
        rows += ["  </graph>"] if graph.channels else []
    return "\n".join([*rows, "</graphs>"]) + "\n"
