"""Machines for the tests of groups."""

import numpy as np

from synth.topology import Device, DeviceKind, Link, LinkClass, Topology

GB = 1_000_000_000


def both(a: str, b: str, kind: LinkClass, rate: float, latency: float = 500) -> list[Link]:
    return [Link(src=s, dst=d, link_class=kind, bytes_per_s=rate, latency_ns=latency) for s, d in ((a, b), (b, a))]


def gpus(count: int, node: str = "n0") -> list[Device]:
    return [Device(id=f"{node}/gpu{i}", kind=DeviceKind.GPU, node=node) for i in range(count)]


def irregular(seed: int, count: int = 8) -> Topology:
    """GPUs joined at random by NVLink bundles of unlike widths, all of them on PCIe under two sockets."""
    rng = np.random.default_rng(seed)
    devices = [*gpus(count), *(Device(id=f"n0/host{h}", kind=DeviceKind.HOST, node="n0") for h in range(2))]
    links = both("n0/host0", "n0/host1", LinkClass.SMP, float(rng.integers(10, 40)) * GB)
    for gpu in range(count):
        links += both(f"n0/gpu{gpu}", f"n0/host{gpu * 2 // count}", LinkClass.PCIE, float(rng.integers(12, 33)) * GB)
    for a in range(count):
        for b in range(a + 1, count):
            if rng.random() < 0.45:
                links += both(f"n0/gpu{a}", f"n0/gpu{b}", LinkClass.NVLINK, float(rng.integers(1, 5)) * 25 * GB)
    return Topology(name=f"irregular{seed}", devices=tuple(devices), links=tuple(links))


def isolated_rails() -> Topology:
    """Two nodes of two NVLink pairs, no path between the pairs; pair p of each node hangs on rail p."""
    devices, links = [], []
    for rail in range(2):
        devices.append(Device(id=f"rail{rail}", kind=DeviceKind.SWITCH))
    for node in ("n0", "n1"):
        devices += gpus(4, node)
        for pair in range(2):
            nic = f"{node}/nic{pair}"
            devices.append(Device(id=nic, kind=DeviceKind.NIC, node=node))
            links += both(nic, f"rail{pair}", LinkClass.NETWORK, 50 * GB)
            first, second = (f"{node}/gpu{2 * pair + i}" for i in range(2))
            links += both(first, second, LinkClass.NVLINK, 450 * GB)
            links += both(first, nic, LinkClass.PCIE, 50 * GB) + both(second, nic, LinkClass.PCIE, 50 * GB)
    return Topology(name="isolated-rails", devices=tuple(devices), links=tuple(links))


def switched(sizes: tuple[int, ...], *, dead_nics: tuple[str, ...] = (), outside: tuple[str, ...] = ()) -> Topology:
    """Nodes of NVSwitch GPUs with a NIC each on one network; ``outside`` GPUs have PCIe to a host, no NVLink."""
    devices, links = [Device(id="net", kind=DeviceKind.SWITCH)], []
    for number, size in enumerate(sizes):
        node = f"n{number}"
        devices += [
            *gpus(size, node),
            Device(id=f"{node}/nvswitch", kind=DeviceKind.SWITCH, node=node),
            Device(id=f"{node}/host", kind=DeviceKind.HOST, node=node),
        ]
        for gpu in range(size):
            name = f"{node}/gpu{gpu}"
            if name in outside:
                links += both(name, f"{node}/host", LinkClass.PCIE, 32 * GB)
            else:
                links += both(name, f"{node}/nvswitch", LinkClass.NVLINK, 450 * GB)
                if outside:
                    links += both(name, f"{node}/host", LinkClass.PCIE, 32 * GB)
            nic = f"{node}/nic{gpu}"
            if nic in dead_nics:
                continue
            devices.append(Device(id=nic, kind=DeviceKind.NIC, node=node))
            links += both(name, nic, LinkClass.PCIE, 50 * GB) + both(nic, "net", LinkClass.NETWORK, 50 * GB)
    return Topology(name="switched", devices=tuple(devices), links=tuple(links))
