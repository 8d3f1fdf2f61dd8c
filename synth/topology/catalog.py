"""Reference machines by name, for benchmarks, tests and trying things out.

Families take a count: ``hgx-h100x32`` is 32 nodes. Parameters follow published tools: TE-CCL (ndv2, dgx2),
ForestColl (mi250, hgx-a100), TACOS (mesh, torus); ``asym8`` is two NVLink islands of four joined by PCIe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product

from synth.errors import NotFoundError
from synth.topology.model import Device, DeviceKind, Link, LinkClass, Topology

GB = 10**9

_DGX1 = (
    "0-1=2 0-2=1 0-3=1 0-4=2 1-2=1 1-3=2 1-5=1 2-3=2 "
    "2-6=2 3-7=1 4-5=2 4-6=1 4-7=1 5-6=1 5-7=2 6-7=2"
)  # NVLink lanes of the DGX-1 hybrid cube mesh
_MI250 = (
    "0-1=4 0-4=2 0-8=1 1-5=1 1-9=1 1-10=1 2-3=4 2-6=1 2-9=1 2-10=1 3-7=2 3-11=1 4-5=4 4-6=1 5-6=1 5-7=1 6-7=4 "
    "8-9=4 8-12=2 9-13=1 10-11=4 10-14=1 11-15=2 12-13=4 12-14=1 13-14=1 13-15=1 14-15=4"
)  # xGMI links between the sixteen dies of eight MI250


def names() -> tuple[str, ...]:
    """The reference machines; :func:`build` knows other counts of the same families too."""
    return (
        "asym8",
        "dgx2x2",
        "hgx-a100x1",
        "hgx-a100x2",
        "hgx-h100x1",
        "hgx-h100x2",
        "hgx-h100x4",
        "hgx-h100x8",
        "hgx-h100x16",
        "mesh5x5",
        "mesh8x5h",
        "mesh10x10",
        "mi250x1",
        "mi250x2",
        "mi250x4",
        "ndv2x1",
        "ndv2x2",
        "ndv2x4",
        "torus3x3x3",
        "torus3x4x5",
        "torus4x4x4",
    )


def build(name: str) -> Topology:
    """Build a reference machine.

    Raises:
        NotFoundError: the name is of no family, or of an unreasonable size.
    """
    for pattern, builder in _FAMILIES:
        match = re.fullmatch(pattern, name)
        if match:
            counts = [int(group) for group in match.groups()]
            if all(1 <= count <= 4096 for count in counts):
                devices, links = builder(*counts)
                return Topology(name=name, devices=tuple(devices), links=tuple(links))
    raise NotFoundError(f"{name}: is not in the catalog, which has {', '.join(names())}", subject=name)


_Parts = tuple[list[Device], list[Link]]


def _gpus(node: int, count: int) -> list[Device]:
    return [Device(id=f"n{node}/gpu{g}", kind=DeviceKind.GPU, node=f"n{node}") for g in range(count)]


def _link(src: str, dst: str, kind: LinkClass, bytes_per_s: int, latency_ns: int) -> Link:
    return Link(src=src, dst=dst, link_class=kind, bytes_per_s=bytes_per_s, latency_ns=latency_ns)


def _both(a: str, b: str, kind: LinkClass, bytes_per_s: int, latency_ns: int) -> list[Link]:
    return [_link(a, b, kind, bytes_per_s, latency_ns), _link(b, a, kind, bytes_per_s, latency_ns)]


def _asym8() -> _Parts:
    devices = _gpus(0, 8)
    devices += [Device(id=f"n0/nvsw{s}", kind=DeviceKind.SWITCH, node="n0") for s in range(2)]
    devices.append(Device(id="n0/host", kind=DeviceKind.HOST, node="n0"))
    links: list[Link] = []
    for g in range(8):
        links += _both(f"n0/gpu{g}", f"n0/nvsw{g // 4}", LinkClass.NVLINK, 300 * GB, 350)
        links += _both(f"n0/gpu{g}", "n0/host", LinkClass.PCIE, 32 * GB, 1000)
    return devices, links


def _meshed_node(node: int, lanes: str, lane_bytes_per_s: int, latency_ns: int) -> list[Link]:
    """Direct NVLink or xGMI between the GPUs of a node, one link per pair with its lanes."""
    links: list[Link] = []
    for pair in lanes.split():
        ends, count = pair.split("=")
        a, b = ends.split("-")
        links += _both(
            f"n{node}/gpu{a}", f"n{node}/gpu{b}", LinkClass.NVLINK, int(count) * lane_bytes_per_s, latency_ns
        )
    return links


def _ndv2(nodes: int) -> _Parts:
    devices = [device for n in range(nodes) for device in _gpus(n, 8)]
    links = [link for n in range(nodes) for link in _meshed_node(n, _DGX1, 25 * GB, 700)]
    rate = 25 * GB // 2
    if nodes == 2:
        for n in range(2):
            links.append(_link(f"n{n}/gpu0", f"n{1 - n}/gpu1", LinkClass.NETWORK, rate, 1300))
    elif nodes > 2:
        devices.append(Device(id="fabric", kind=DeviceKind.SWITCH))
        for n in range(nodes):
            links.append(_link(f"n{n}/gpu0", "fabric", LinkClass.NETWORK, rate, 650))
            links.append(_link("fabric", f"n{n}/gpu1", LinkClass.NETWORK, rate, 650))
    return devices, links


def _dgx2x2() -> _Parts:
    devices: list[Device] = []
    links: list[Link] = []
    for n in range(2):
        devices += [*_gpus(n, 16), Device(id=f"n{n}/nvswitch", kind=DeviceKind.SWITCH, node=f"n{n}")]
        for g in range(16):
            links += _both(f"n{n}/gpu{g}", f"n{n}/nvswitch", LinkClass.NVLINK, 125 * GB, 175)
    for n in range(2):
        for g in range(1, 16, 2):
            links.append(_link(f"n{n}/gpu{g}", f"n{1 - n}/gpu{g - 1}", LinkClass.NETWORK, 25 * GB // 2, 2600))
    return devices, links


def _hgx(nodes: int, nvlink: int, nic: int) -> _Parts:
    devices: list[Device] = []
    links: list[Link] = []
    for n in range(nodes):
        devices += [*_gpus(n, 8), Device(id=f"n{n}/nvswitch", kind=DeviceKind.SWITCH, node=f"n{n}")]
        for g in range(8):
            links += _both(f"n{n}/gpu{g}", f"n{n}/nvswitch", LinkClass.NVLINK, nvlink, 350)
        if nodes > 1:
            devices += [Device(id=f"n{n}/nic{g}", kind=DeviceKind.NIC, node=f"n{n}") for g in range(8)]
            for g in range(8):
                links += _both(f"n{n}/gpu{g}", f"n{n}/nic{g}", LinkClass.PCIE, nic, 300)
                links += _both(f"n{n}/nic{g}", "fabric", LinkClass.NETWORK, nic, 1300)
    if nodes > 1:
        devices.append(Device(id="fabric", kind=DeviceKind.SWITCH))
    return devices, links


def _mi250(nodes: int) -> _Parts:
    devices = [device for n in range(nodes) for device in _gpus(n, 16)]
    links: list[Link] = []
    for n in range(nodes):
        links += _meshed_node(n, _MI250, 50 * GB, 700)
        if nodes > 1:
            for g in range(16):
                links += _both(f"n{n}/gpu{g}", "fabric", LinkClass.NETWORK, 16 * GB, 1300)
    if nodes > 1:
        devices.append(Device(id="fabric", kind=DeviceKind.SWITCH))
    return devices, links


def _grid(
    sides: tuple[int, ...],
    neighbours: Callable[[tuple[int, ...]], Iterable[tuple[int, ...]]],
    rate: Callable[[tuple[int, ...], tuple[int, ...]], int],
    latency_ns: int,
) -> _Parts:
    """GPUs on a grid, row-major; links in the order of sender, then receiver."""
    place = {point: number for number, point in enumerate(product(*map(range, sides)))}
    links = [
        _link(f"n0/gpu{place[a]}", f"n0/gpu{place[b]}", LinkClass.NVLINK, rate(a, b), latency_ns)
        for a in place
        for b in sorted(set(neighbours(a)) & place.keys())
    ]
    return _gpus(0, len(place)), links


def _steps(point: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [(*point[:i], point[i] + d, *point[i + 1 :]) for i in range(len(point)) for d in (-1, 1)]


def _mesh(rows: int, columns: int, rate: int, latency_ns: int) -> _Parts:
    return _grid((rows, columns), _steps, lambda a, b: rate, latency_ns)


def _mesh_uneven(rows: int, columns: int) -> _Parts:
    """A mesh whose columns are faster (80 GB/s) than its rows (35 GB/s)."""
    return _grid((rows, columns), _steps, lambda a, b: 80 * GB if a[1] == b[1] else 35 * GB, 1000)


def _torus(*sides: int) -> _Parts:
    def wrapped(point: tuple[int, ...]) -> list[tuple[int, ...]]:
        around = [tuple(x % side for x, side in zip(step, sides, strict=True)) for step in _steps(point)]
        return [step for step in around if step != point]

    return _grid(sides, wrapped, lambda a, b: 50 * GB, 500)


_FAMILIES: tuple[tuple[str, Callable[..., _Parts]], ...] = (
    (r"asym8", _asym8),
    (r"ndv2x(\d+)", _ndv2),
    (r"dgx2x2", _dgx2x2),
    (r"hgx-a100x(\d+)", lambda nodes: _hgx(nodes, 300 * GB, 25 * GB)),
    (r"hgx-h100x(\d+)", lambda nodes: _hgx(nodes, 450 * GB, 50 * GB)),
    (r"mi250x(\d+)", _mi250),
    (r"mesh5x5", lambda: _mesh(5, 5, 50 * GB, 500)),
    (r"mesh10x10", lambda: _mesh(10, 10, 100 * GB, 1000)),
    (r"mesh8x5h", lambda: _mesh_uneven(8, 5)),
    (r"torus(\d+)x(\d+)x(\d+)", _torus),
)
