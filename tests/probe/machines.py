"""Generated machines, and printing them the way ``nvidia-smi topo -m`` does, well-kept or mistreated."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from probe.facts import Distance, Path


@dataclass(frozen=True)
class Machine:
    """A PCIe tree of sockets, switches and slots, with NVLink lanes between some GPUs."""

    gpus: int
    nics: int
    home: tuple[tuple[int, int, int], ...]  # socket, switch, slot of each device
    lanes: dict[tuple[int, int], int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [f"GPU{i}" for i in range(self.gpus)] + [f"NIC{i}" for i in range(self.nics)]

    def path(self, a: int, b: int) -> Path:
        if lanes := self.lanes.get((min(a, b), max(a, b))):
            return Path(lanes=lanes)
        one, other = self.home[a], self.home[b]
        if one[0] != other[0]:
            return Path(distance=Distance.SYS)
        if one[1] != other[1]:
            return Path(distance=Distance.NODE)
        return Path(distance=Distance.PXB if one[2] != other[2] else Distance.PIX)

    def paths(self) -> dict[tuple[str, str], Path]:
        names = self.names
        return {(names[a], names[b]): self.path(a, b) for a in range(len(names)) for b in range(a + 1, len(names))}


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    gpus, nics = draw(st.integers(1, 16)), draw(st.integers(0, 12))
    place = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))
    home = tuple(draw(st.lists(place, min_size=gpus + nics, max_size=gpus + nics)))
    lanes = {}
    style = draw(st.sampled_from(["none", "all", "some"]))
    count = draw(st.sampled_from([1, 2, 4, 6, 8, 12, 18]))
    for a in range(gpus):
        for b in range(a + 1, gpus):
            if style == "all" or (style == "some" and draw(st.booleans())):
                lanes[a, b] = count
    return Machine(gpus, nics, home, lanes)


def printed(machine: Machine, *, style: str, seed: int) -> str:
    """The matrix as text.

    Args:
        machine: what to print.
        style: words of: tabs, spaces, single (one blank between cells), ansi, lost (ESC bytes lost), crlf, shuffled
            (NIC columns), mixed (rows), wrapped (header), html, prompt, legend, noaffinity, norows (NIC rows missing).
        seed: for the shuffle.
    """
    names = machine.names
    order = list(range(len(names)))
    if "shuffled" in style:
        nics = order[machine.gpus :]
        random.Random(seed).shuffle(nics)
        order = order[: machine.gpus] + nics
    labels = [] if "noaffinity" in style else ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    head = [names[i] for i in order] + labels
    rows = []
    for row in order:
        cells = [" X " if row == column else str(machine.path(row, column)) for column in order]
        tail = []
        if labels and row < machine.gpus:
            socket = machine.home[row][0]
            tail = [f"{socket * 32}-{socket * 32 + 31}", str(socket), "", "N/A"]
        if row < machine.gpus or "norows" not in style:
            rows.append([names[row], *cells, *tail])
    if "mixed" in style:
        random.Random(seed).shuffle(rows)
    if "single" in style:
        lines = [" ".join(head)] + [" ".join(text.strip() for text in row if text) for row in rows]
    elif "spaces" in style:
        lines = ["".join(text.ljust(8) for text in ["", *head])]
        lines += ["".join((text + " ").ljust(8) for text in row if text) for row in rows]
    else:
        lines = ["\t" + "\t".join(head)] + ["\t".join(row) for row in rows]
    if "ansi" in style:
        lines[0] = lines[0].replace("GPU0", "\x1b[4mGPU0", 1) + "\x1b[0m"
    if "lost" in style:
        lines[0] = lines[0].replace("GPU0", "[4mGPU0", 1) + "[0m"
    if "wrapped" in style and machine.gpus > 1 and not {"ansi", "lost"} & set(style.split()):
        before, _, after = lines[0].partition("GPU1")
        lines[:1] = [before, f"GPU1{after}"]
    if "html" in style:
        lines = ["<div><pre><code>", *(f"<span>{line}</span>" for line in lines), "</code></pre></div>"]
    if "prompt" in style:
        lines.insert(0, "root@host:~# nvidia-smi topo -m")
        lines.insert(0, "Note: GPU0 is warm")
    if "legend" in style:
        lines += ["", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing a bonded set of # NVLinks", ""]
    return ("\r\n" if "crlf" in style else "\n").join(lines) + "\n"
