"""Stand-ins for what only a GPU machine has: a sysfs tree in a folder, and NVML as a module."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def sysfs(
    root: Path,
    devices: dict[str, dict[str, str]],
    *,
    infiniband: dict[str, tuple[str, str, str]] | None = None,
    net: dict[str, tuple[str, str]] | None = None,
    cpuinfo: str = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n",
    acs: tuple[str, ...] = (),
) -> Path:
    """Write a sysfs.

    Args:
        root: empty folder.
        devices: path below the root complex, such as ``pci0000:00/0000:00:01.0/0000:01:00.0`` -> attributes.
        infiniband: device -> (path of its PCI function, rate, state).
        net: interface -> (path of its PCI function, speed in Mb/s).
        cpuinfo: content of ``/proc/cpuinfo``.
        acs: paths of bridges whose access control redirects.
    """
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(cpuinfo)
    (root / "proc/sys/kernel/random/boot_id").write_text("0000-boot\n")
    for path, attributes in devices.items():
        folder = root / "sys/devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in attributes.items():
            (folder / name).write_text(value + "\n")
        if path in acs:
            header = struct.pack("<IHH", 0x0D | 1 << 16, 0x1F, 0x1D)
            (folder / "config").write_bytes(bytes(0x100) + header + bytes(64))
        (root / "sys/bus/pci/devices" / folder.name).symlink_to(folder)
    for name, (path, rate, state) in (infiniband or {}).items():
        port = root / f"sys/class/infiniband/{name}/ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text(rate)
        (port / "state").write_text(state)
        (root / f"sys/class/infiniband/{name}/device").symlink_to(root / "sys/devices" / path)
    for name, (path, speed) in (net or {}).items():
        folder = root / f"sys/class/net/{name}"
        folder.mkdir(parents=True)
        (folder / "speed").write_text(speed)
        (folder / "operstate").write_text("up")
        (folder / "device").symlink_to(root / "sys/devices" / path)
    return root


GPU = {
    "class": "0x030200", "vendor": "0x10de", "device": "0x2335", "numa_node": "0",
    "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
}  # fmt: skip
NIC = GPU | {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"}
BRIDGE = GPU | {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}


class NvmlError(Exception):
    """What every call of the stand-in raises when it does not know."""


@dataclass
class FakeGpu:
    """One GPU of the stand-in."""

    bus: str
    uuid: str
    name: str = "NVIDIA H200"
    up: int = 18
    down: int = 0
    remote: str = "FFFFFFFF:FF:FF.0"
    remotes: dict[int, str] = field(default_factory=dict)
    mig: int = 0
    fabric: tuple[int, int, bytes, int] | None = None  # state, status, cluster, clique
    speed: int = 26562
    chips: int = 0


class FakeNvml:
    """``pynvml`` as far as the probe asks it."""

    NVMLError = NvmlError
    NVML_FI_DEV_NVLINK_GET_SPEED = 164
    NVML_FI_DEV_C2C_LINK_COUNT = 170
    NVML_FI_DEV_C2C_LINK_GET_MAX_BW = 172
    nvmlGpuFabricInfo_v2 = 2

    def __init__(self, gpus: list[FakeGpu], *, level: int = 30, p2p: int = 0) -> None:
        self.gpus = gpus
        self.level = level
        self.p2p = p2p
        self.open = False

    class c_nvmlGpuFabricInfoV_t(ctypes.Structure):  # the library's own name
        _fields_ = (
            ("version", ctypes.c_uint),
            ("clusterUuid", ctypes.c_ubyte * 16),
            ("status", ctypes.c_uint),
            ("cliqueId", ctypes.c_uint),
            ("state", ctypes.c_uint),
        )

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(busId=gpu.bus.encode())

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> tuple[int, int]:
        return gpu.mig, gpu.mig

    def nvmlDeviceGetMemoryAffinity(self, gpu: FakeGpu, size: int, scope: int) -> list[int]:
        return [1, 0, 0, 0]

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        if link >= gpu.up + gpu.down:
            raise NvmlError("Invalid Argument")
        return int(link < gpu.up)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: FakeGpu, link: int) -> Any:
        return SimpleNamespace(busId=gpu.remotes.get(link, gpu.remote))

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[Any]) -> list[Any]:
        known = {164: gpu.speed, 170: gpu.chips, 172: 45_000 if gpu.chips else 0}
        numbers = [field[0] if isinstance(field, tuple) else field for field in fields]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=known[number])) for number in numbers]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: FakeGpu, info: Any) -> int:
        if gpu.fabric is None:
            raise NvmlError("Not Supported")
        told = info._obj
        told.state, told.status, cluster, told.cliqueId = gpu.fabric
        told.clusterUuid[:] = cluster
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one: FakeGpu, other: FakeGpu) -> int:
        return self.level

    def nvmlDeviceGetP2PStatus(self, one: FakeGpu, other: FakeGpu, index: int) -> int:
        return self.p2p
