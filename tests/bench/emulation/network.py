"""One network namespace per rank on one bridge, its ports shaped in the kernel like a topology's links.

Each GPU's first and last links of its routes become one class each: at the rank's own end by destination, at the
bridge's end by source. So a rank has, in each direction, one port per link of its own, shared by the peers whose
routes use that link, as NVLink ports and PCIe slots are. Links between switches are not shaped. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from synth.topology import Routes, Topology

PREFIX = "synthemu"
SUBNET = "10.213.47"


def unavailable() -> str | None:
    """Why namespaces cannot be shaped here, or None."""
    if os.geteuid() != 0:
        return "needs root (network namespaces and traffic shaping)"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs the command {tool} (package iproute2)"
    probe = f"{PREFIX}-try"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None if made.returncode == 0 else "this kernel or sandbox refuses network namespaces"


def address(rank: int) -> str:
    """The rank's address on the bridge."""
    return f"{SUBNET}.{rank + 1}"


def namespace(rank: int) -> str:
    """The rank's namespace."""
    return f"{PREFIX}{rank}"


@contextmanager
def shaped(topology: Topology, *, bits_per_byte_per_s: float) -> Iterator[None]:
    """Build the network, and take it away again whatever happens.

    Args:
        topology: its GPUs are the ranks.
        bits_per_byte_per_s: shaped bit/s for one byte/s of a real link.
    """
    routes = Routes.among(topology)
    try:
        _remove(routes.ranks)
        _run("ip", "link", "add", PREFIX, "type", "bridge")
        _run("ip", "link", "set", PREFIX, "up")
        _run("ip", "addr", "add", f"{SUBNET}.254/24", "dev", PREFIX)
        for rank in range(routes.ranks):
            _plug(rank)
        for rank in range(routes.ranks):
            peers = [peer for peer in range(routes.ranks) if routes.exists[rank, peer]]
            leaving = {peer: int(routes.route(rank, peer)[0]) for peer in peers}
            _shape(["ip", "netns", "exec", namespace(rank)], "eth0", "dst", leaving, topology, bits_per_byte_per_s)
            senders = [peer for peer in range(routes.ranks) if routes.exists[peer, rank]]
            entering = {peer: int(routes.route(peer, rank)[-1]) for peer in senders}
            _shape([], f"{PREFIX}v{rank}", "src", entering, topology, bits_per_byte_per_s)
        yield
    finally:
        _remove(routes.ranks)


def _plug(rank: int) -> None:
    outer, inner = f"{PREFIX}v{rank}", f"{PREFIX}p{rank}"
    _run("ip", "netns", "add", namespace(rank))
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
    _run("ip", "link", "set", inner, "netns", namespace(rank))
    _run("ip", "link", "set", outer, "master", PREFIX)
    _run("ip", "link", "set", outer, "up")
    inside = ["ip", "netns", "exec", namespace(rank), "ip"]
    _run(*inside, "link", "set", inner, "name", "eth0")
    _run(*inside, "addr", "add", f"{address(rank)}/24", "dev", "eth0")
    _run(*inside, "link", "set", "eth0", "up")
    _run(*inside, "link", "set", "lo", "up")


def _shape(
    where: list[str], device: str, field: str, link_of: dict[int, int], topology: Topology, scale: float
) -> None:
    """One htb class per link; peers are filtered into the class of the link they use."""
    _run(*where, "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb")
    for number, link in enumerate(sorted(set(link_of.values())), start=1):
        bits = round(topology.links[link].bytes_per_s * scale)
        burst = max(bits // 8 // 500, 16_000)  # two milliseconds
        _run(
            *(*where, "tc", "class", "add", "dev", device, "parent", "1:", "classid", f"1:{number}", "htb"),
            *("rate", f"{bits}bit", "ceil", f"{bits}bit", "burst", str(burst), "cburst", str(burst), "quantum", "9000"),
        )
        for peer in (peer for peer, used in link_of.items() if used == link):
            _run(
                *(*where, "tc", "filter", "add", "dev", device, "protocol", "ip", "parent", "1:", "prio", "1"),
                *("u32", "match", "ip", field, address(peer), "flowid", f"1:{number}"),
            )


def _remove(ranks: int) -> None:
    for rank in range(ranks):
        subprocess.run(["ip", "netns", "del", namespace(rank)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{PREFIX}v{rank}"], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", PREFIX], capture_output=True, check=False)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def launcher(folder: Path) -> Path:
    """A stand-in for rsh: runs the command in the namespace that owns the host's address."""
    script = folder / "enter"
    script.write_text(
        "#!/bin/sh\n"
        "# hydra calls: enter [options] ADDRESS COMMAND...\n"
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        "host=$1; shift\n"
        f"rank=$((${{host##*.}} - 1))\n"
        f'exec ip netns exec "{PREFIX}$rank" sh -c "$*"\n'
    )
    script.chmod(0o755)
    return script
