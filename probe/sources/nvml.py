"""NVML: the driver's own answers, through nvidia-ml-py. Devices are told apart by PCI id and UUID, never by index."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from ctypes import byref
from typing import Any, TypeVar

from probe.facts import SWITCHED, Bundle, Distance, Facts, Gpu, Path, PcieLink, Ports
from probe.findings import finding
from probe.sources.pci import bus_id
from synth.errors import CaptureError
from synth.topology import Finding
from synth.topology.model import abridge

T = TypeVar("T")

SLOW_SECONDS = 30.0
"""A healthy driver answers everything asked here in well under a second per GPU."""

_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_DISTANCE = {10: Distance.PIX, 20: Distance.PXB, 30: Distance.PHB, 40: Distance.NODE, 50: Distance.SYS}
_NO_BUS = re.compile(r"f+:ff:ff\.[0-9a-f]", re.I)
_P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_FABRIC = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


def read(library: Any = None, *, progress: Callable[[str], None] = lambda _: None) -> Facts:
    """Facts that NVML gives of this machine.

    Args:
        library: the ``pynvml`` module; a fake in tests. Default: the installed one.
        progress: told once, when the driver is slow.

    Raises:
        CaptureError: there is no driver, no library or no GPU.
    """
    nvml = library if library is not None else _load()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise CaptureError(f"nvml: the NVIDIA driver does not answer ({error})", subject="nvml") from None
    try:
        return _Reader(nvml, progress).facts()
    except nvml.NVMLError as error:
        raise CaptureError(f"nvml: the NVIDIA driver failed while it was read ({error})", subject="nvml") from None
    finally:
        nvml.nvmlShutdown()


def _load() -> Any:
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        message = "nvml: nvidia-ml-py is not installed; install synth with its extra probe"
        raise CaptureError(message, subject="nvml") from None
    return pynvml


class _Reader:
    def __init__(self, nvml: Any, progress: Callable[[str], None]) -> None:
        self.nvml = nvml
        self.progress = progress
        self.findings: list[Finding] = []

    def ask(self, default: T, call: str, *arguments: Any) -> T:
        """One answer, or the default where this driver or GPU does not know the question."""
        function = getattr(self.nvml, call, None)
        if function is None:
            return default
        try:
            answer: T = function(*arguments)
        except (self.nvml.NVMLError, TypeError, AttributeError):
            return default
        return answer

    def facts(self) -> Facts:
        started = time.monotonic()
        count = self.ask(0, "nvmlDeviceGetCount")
        if not count:
            raise CaptureError("nvml: the driver shows no GPU", subject="nvml")
        handles = [self.nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        buses = [bus_id(_text(self.nvml.nvmlDeviceGetPciInfo(handle).busId)) for handle in handles]
        order = sorted(range(count), key=buses.__getitem__)
        handles, buses = [handles[i] for i in order], [buses[i] for i in order]
        names = [f"GPU{number}" for number in range(count)]
        gpus = tuple(self._gpu(name, handle, bus) for name, handle, bus in zip(names, handles, buses, strict=True))
        ports = {name: self._ports(handle) for name, handle in zip(names, handles, strict=True)}
        bundles = self._bundles(names, handles, dict(zip(buses, names, strict=True)), ports)
        paths, peers = self._pairs(names, handles)
        fabric = {name: state for name, handle in zip(names, handles, strict=True) if (state := self._fabric(handle))}
        secrecy = self.ask(None, "nvmlSystemGetConfComputeState")
        if secrecy is not None and getattr(secrecy, "ccFeature", 0) == 1:
            text = "confidential computing is on; transfers to and from the host are encrypted and slower"
            self.findings.append(finding("confidential-mode", names[0], text))
        took = time.monotonic() - started
        if took > SLOW_SECONDS:
            self.findings.append(finding("driver-slow", "nvml", f"the driver took {took:.0f} s to answer"))
        return Facts(
            source="NVML",
            gpus=gpus,
            paths=paths,
            bundles=bundles,
            ports=ports,
            peers=peers,
            fabric=fabric,
            findings=tuple(self.findings),
        )

    def _gpu(self, name: str, handle: Any, bus: str) -> Gpu:
        capability = self.ask((0, 0), "nvmlDeviceGetCudaComputeCapability", handle)
        nodes: list[int] = self.ask([], "nvmlDeviceGetMemoryAffinity", handle, 4, 0)
        mig = self.ask((0, 0), "nvmlDeviceGetMigMode", handle)
        if mig and mig[0] == 1:
            self.findings.append(finding("mig-enabled", name, f"MIG is on at {name}; its slices have no NVLink"))
        return Gpu(
            name=name,
            pci=bus,
            uuid=_text(self.ask("", "nvmlDeviceGetUUID", handle)) or None,
            model=_text(self.ask("", "nvmlDeviceGetName", handle)) or None,
            sm=10 * capability[0] + capability[1] if capability[0] else None,
            numa=next((64 * w + b for w, word in enumerate(nodes) for b in range(64) if word >> b & 1), None),
            memory_numa=self.ask(None, "nvmlDeviceGetNumaNodeId", handle),
            pcie=PcieLink(
                gts=_GTS.get(self.ask(0, "nvmlDeviceGetCurrPcieLinkGeneration", handle), 0.0),
                width=self.ask(0, "nvmlDeviceGetCurrPcieLinkWidth", handle),
                most_gts=_GTS.get(self.ask(0, "nvmlDeviceGetMaxPcieLinkGeneration", handle), 0.0),
                most_width=self.ask(0, "nvmlDeviceGetMaxPcieLinkWidth", handle),
            ),
        )

    def _ports(self, handle: Any) -> Ports:
        up: list[int] = []
        down: list[int] = []
        for link in range(getattr(self.nvml, "NVML_NVLINK_MAX_LINKS", 18)):
            state = self.ask(None, "nvmlDeviceGetNvLinkState", handle, link)
            if state is not None:
                (up if state == 1 else down).append(link)
        return Ports(up=tuple(up), down=tuple(down), raw_bytes_per_s=self._speed(handle, up))

    def _speed(self, handle: Any, up: list[int]) -> float:
        """Signalling rate of the first active link, in bytes per second; 0 where the driver does not say."""
        return 0.0 if not up else 1e6 * self._field(handle, "NVML_FI_DEV_NVLINK_GET_SPEED", up[0])

    def _field(self, handle: Any, name: str, scope: int = 0) -> int:
        """One of NVML's numbered fields; 0 where this driver or GPU does not have it."""
        number = getattr(self.nvml, name, None)
        if number is None:
            return 0
        for question in ((number, scope), number):
            values: list[Any] = self.ask([], "nvmlDeviceGetFieldValues", handle, [question])
            if values and values[0].nvmlReturn == 0:
                return int(values[0].value.uiVal)
        return 0

    def _chip(self, name: str, handle: Any) -> list[Bundle]:
        """Chip-to-chip links to the CPU beside the GPU (Grace)."""
        count = self._field(handle, "NVML_FI_DEV_C2C_LINK_COUNT")
        megabytes = self._field(handle, "NVML_FI_DEV_C2C_LINK_GET_MAX_BW")
        if not (0 < count < 64 and megabytes > 0):
            return []
        return [Bundle(gpu=name, peer="cpu", lanes=count, lane_bytes_per_s=megabytes * 1e6, chip=True)]

    def _bundles(
        self, names: list[str], handles: list[Any], by_bus: dict[str, str], ports: dict[str, Ports]
    ) -> tuple[Bundle, ...]:
        lanes: dict[tuple[str, str], int] = {}
        hidden: list[str] = []
        for name, handle in zip(names, handles, strict=True):
            for link in ports[name].up:
                remote = self.ask(None, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
                bus = bus_id(_text(remote.busId)) if remote is not None else ""
                if not bus or _NO_BUS.fullmatch(bus):
                    hidden.append(name)
                peer = by_bus.get(bus, SWITCHED)
                lanes[name, peer] = lanes.get((name, peer), 0) + 1
        if hidden:
            self.findings.append(
                finding(
                    "fabric-remote-unknown",
                    hidden[0],
                    f"NVLinks of {abridge(list(dict.fromkeys(hidden)))} report an all-ones remote id: "
                    "a switch that is not visible here, not one more NVLink domain",
                )
            )
        links = [Bundle(gpu=gpu, peer=peer, lanes=count) for (gpu, peer), count in lanes.items() if gpu != peer]
        chips = [chip for name, handle in zip(names, handles, strict=True) for chip in self._chip(name, handle)]
        return (*links, *chips)

    def _pairs(
        self, names: list[str], handles: list[Any]
    ) -> tuple[dict[tuple[str, str], Path], dict[tuple[str, str], str]]:
        paths: dict[tuple[str, str], Path] = {}
        peers: dict[tuple[str, str], str] = {}
        for a, one in enumerate(handles):
            for b, other in enumerate(handles):
                if a == b:
                    continue
                if a < b:
                    level = self.ask(0, "nvmlDeviceGetTopologyCommonAncestor", one, other)
                    if level in _DISTANCE:
                        paths[names[a], names[b]] = Path(distance=_DISTANCE[level])
                status = self.ask(None, "nvmlDeviceGetP2PStatus", one, other, 0)
                if status is not None:
                    peers[names[a], names[b]] = _P2P.get(int(status), "U")
        return paths, peers

    def _fabric(self, handle: Any) -> tuple[str, str, int] | None:
        """(state, cluster uuid, clique) of the NVLink fabric; None where the GPU is in none."""
        kind = getattr(self.nvml, "c_nvmlGpuFabricInfoV_t", None)
        if kind is None:
            return None
        info = kind()
        if hasattr(self.nvml, "nvmlGpuFabricInfo_v2"):
            info.version = self.nvml.nvmlGpuFabricInfo_v2
        if self.ask("failed", "nvmlDeviceGetGpuFabricInfoV", handle, byref(info)) == "failed":
            return None
        state = _FABRIC.get(int(info.state), "unknown")
        if state == "not supported":
            return None
        if int(getattr(info, "status", 0)) != 0 and state == "completed":
            state = f"failed with status {int(info.status)}"
        return state, bytes(info.clusterUuid).hex(), int(info.cliqueId)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
