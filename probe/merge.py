"""Several sources about one machine become one: the more direct source wins, and disagreements become findings.

The rule, first wins: NVML, sysfs, NCCL's XML, lstopo, nvidia-smi's text, anything else. It holds per fact: a source
that does not know a fact leaves it to the next. Devices are the same when bus id or UUID are; a source with neither is
matched by order, and only when it shows as many devices. Several reports of one machine (one per container, each with
its own GPUs) add up; reports of different hosts are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from probe.facts import Bridge, Bundle, Facts, Gpu, Nic, Socket
from probe.findings import finding
from probe.rates import model_of
from probe.rename import renamed
from probe.wiring import with_bundles
from synth.errors import CaptureError
from synth.topology import Finding

LIVE = ("NVML", "sysfs")
"""Sources that see this machine as it is; what a file names beyond them is not there."""

FIELDS = ("pci", "uuid", "model", "numa", "sm", "memory_numa")
"""What is compared, and credited to a source, of each GPU."""

DIRECTNESS = ("NVML", "sysfs", "NCCL topology XML", "lstopo XML", "nvidia-smi topo -m", "nvidia-smi nvlink")


def merge(reports: Sequence[Facts]) -> Facts:
    """Join what several sources say about one machine.

    Raises:
        CaptureError: there is nothing to merge, the sources are about different machines, or one cannot be matched.
    """
    if not reports:
        raise CaptureError("merge: needs at least one source", subject="merge")
    if len(reports) == 1:
        return reports[0]
    hosts = list(dict.fromkeys(report.host for report in reports if report.host))
    kinds = [host.partition(":")[0] for host in hosts]  # NCCL and synth hash a host differently
    if len(hosts) > 1 and len(set(kinds)) < len(kinds):
        raise CaptureError(
            f"merge: the sources are of {len(hosts)} machines ({hosts[0]}, {hosts[1]}); "
            "probe each machine by itself, then join them with synth topo merge",
            subject="merge",
        )
    ordered = sorted(reports, key=_directness)
    return _Merger(ordered, hosts[0] if hosts else None).facts()


def _directness(report: Facts) -> int:
    """Place in the order of sources; of a report that was merged before, its most direct source counts."""
    places = [DIRECTNESS.index(part) for part in report.source.split(" + ") if part in DIRECTNESS]
    return min(places, default=len(DIRECTNESS))


def _is_live(report: Facts) -> bool:
    return any(part in LIVE for part in report.source.split(" + "))


class _Merger:
    """Goes through the reports from the most direct on; ``names`` maps each report's names to the merged ones."""

    def __init__(self, reports: Sequence[Facts], host: str | None) -> None:
        self.host = host
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []
        self.origin: dict[str, str] = {}
        self.findings: list[Finding] = []
        self.reports = []
        self.live = any(map(_is_live, reports))
        for report in reports:
            names = self._match_gpus(report) | self._match_nics(report)
            self.reports.append(renamed(report, names))

    def _disagree(self, what: str, subject: str, one: tuple[str, object], other: tuple[str, object]) -> None:
        text = f"{what}: {one[0]} says {one[1]}, {other[0]} says {other[1]}; {one[0]} is the more direct"
        self.findings.append(finding("sources-disagree", subject.partition("-")[0], text))

    def _match_gpus(self, report: Facts) -> dict[str, str]:
        names: dict[str, str] = {}
        if self.live and not _is_live(report) and any(gpu.pci for gpu in report.gpus):
            told = {gpu.pci for gpu in report.gpus}
            for gpu in self.gpus:
                if gpu.pci is not None and gpu.pci not in told:
                    text = f"{report.source} does not name {gpu.name} at {gpu.pci}, which this machine has"
                    self.findings.append(finding("device-missing", gpu.name, text))
        known = [gpu for gpu in report.gpus if gpu.pci or gpu.uuid]
        if self.gpus and report.gpus and not known and len(report.gpus) != len(self.gpus):
            raise CaptureError(
                f"{report.source}: shows {len(report.gpus)} GPUs without bus ids, the other sources {len(self.gpus)}; "
                "they cannot be told to be the same",
                subject=report.source,
            )
        by_order = bool(self.gpus) and not all(
            (gpu.pci and any(g.pci for g in self.gpus)) or (gpu.uuid and any(g.uuid for g in self.gpus))
            for gpu in report.gpus
        )
        for position, gpu in enumerate(report.gpus):
            index = self._same_gpu(gpu)
            if index is None and by_order and position < len(self.gpus):
                index = position
            if index is None and self.live and not _is_live(report):
                text = f"{report.source} names the GPU at {gpu.pci}, which this machine does not show"
                self.findings.append(finding("device-missing", report.source, text))
                continue
            if index is None:
                names[gpu.name] = f"GPU{len(self.gpus)}"
                self.gpus.append(replace(gpu, name=names[gpu.name]))
                self._credit(self.gpus[-1], report.source)
                continue
            names[gpu.name] = self.gpus[index].name
            self.gpus[index] = self._joined_gpu(self.gpus[index], gpu, report.source)
        return names

    def _credit(self, gpu: Gpu, source: str) -> None:
        """Remember where each value of a GPU comes from; the first that gave it stays."""
        for field in FIELDS:
            if getattr(gpu, field) is not None:
                self.origin.setdefault(f"{gpu.name}.{field}", source)

    def _same_gpu(self, gpu: Gpu) -> int | None:
        for index, other in enumerate(self.gpus):
            if (gpu.uuid and gpu.uuid == other.uuid) or (gpu.pci and gpu.pci == other.pci):
                return index
        return None

    def _joined_gpu(self, one: Gpu, other: Gpu, source: str) -> Gpu:
        """The first report's values, filled up with the second's."""
        for field in FIELDS:
            mine, theirs = getattr(one, field), getattr(other, field)
            same = mine == theirs
            if field == "model" and mine and theirs:  # names differ in wording, not in what they mean
                same = model_of(one) == model_of(replace(one, model=theirs))
            if mine is not None and theirs is not None and not same:
                known = self.origin[f"{one.name}.{field}"]
                self._disagree(f"{field} of {one.name}", one.name, (known, mine), (source, theirs))
        self._credit(replace(other, name=one.name), source)
        return replace(
            one,
            pci=one.pci or other.pci,
            uuid=one.uuid or other.uuid,
            model=one.model or other.model,
            sm=one.sm if one.sm is not None else other.sm,
            numa=one.numa if one.numa is not None else other.numa,
            memory_numa=one.memory_numa if one.memory_numa is not None else other.memory_numa,
            cpus=one.cpus or other.cpus,
            pcie=one.pcie if one.pcie.gts else other.pcie,
            visible=one.visible or other.visible,
        )

    def _match_nics(self, report: Facts) -> dict[str, str]:
        names: dict[str, str] = {}
        anonymous = [nic for nic in report.nics if not nic.device and not nic.pci]
        by_order = bool(anonymous) and len(report.nics) == len(self.nics)
        for position, nic in enumerate(report.nics):
            index = next((i for i, other in enumerate(self.nics) if _same_nic(nic, other)), None)
            if index is None and by_order:
                index = position
            if index is None:
                names[nic.name] = f"NIC{len(self.nics)}"
                self.nics.append(replace(nic, name=names[nic.name]))
                self.origin[f"{names[nic.name]}.numa"] = report.source
                continue
            one = self.nics[index]
            names[nic.name] = one.name
            if one.numa is not None and nic.numa is not None and one.numa != nic.numa:
                known = self.origin.get(f"{one.name}.numa", "the more direct source")
                self._disagree(f"numa of {one.name}", one.name, (known, one.numa), (report.source, nic.numa))
            self.nics[index] = replace(
                one,
                device=one.device or nic.device,
                pci=one.pci or nic.pci,
                numa=one.numa if one.numa is not None else nic.numa,
                bytes_per_s=one.bytes_per_s or nic.bytes_per_s,
                most_bytes_per_s=one.most_bytes_per_s or nic.most_bytes_per_s,
                state=one.state or nic.state,
                pcie=one.pcie if one.pcie.gts else nic.pcie,
                subnet=one.subnet or nic.subnet,
            )
        return names

    def facts(self) -> Facts:
        tree = next((report for report in self.reports if report.parents), None)
        parents, bridges, sockets = self._tree(tree)
        paths = self._first("distance", [report.paths for report in self.reports])
        merged = Facts(
            source=" + ".join(dict.fromkeys(report.source for report in self.reports)),
            host=self.host,
            gpus=tuple(self.gpus),
            nics=tuple(self.nics),
            bridges=bridges,
            sockets=sockets,
            parents=parents,
            paths=paths,
            bundles=self._bundles(),
            ports=self._first("ports", [report.ports for report in self.reports]),
            peers=self._first("P2P", [report.peers for report in self.reports]),
            fabric=self._first("fabric", [report.fabric for report in self.reports]),
            doubtful=frozenset().union(*(report.doubtful for report in self.reports)),
            hidden=all(report.hidden for report in self.reports),
            origin=self.origin | ({"tree": tree.source} if tree else {}),
            findings=tuple(dict.fromkeys(f for report in self.reports for f in report.findings)),
        )
        return replace(merged, findings=merged.findings + tuple(dict.fromkeys(self.findings)))

    def _tree(self, tree: Facts | None) -> tuple[dict[str, str], tuple[Bridge, ...], tuple[Socket, ...]]:
        """The most direct tree; what it lacks comes from the other trees, or hangs on the socket of its NUMA node."""
        if tree is None:
            return {}, (), ()
        present = {device.name for device in tree.devices} | {bridge.name for bridge in tree.bridges}
        parents = {name: parent for name, parent in tree.parents.items() if name in present}
        bridges, sockets = list(tree.bridges), list(tree.sockets)
        for other in self.reports:
            for device in other.devices:
                if device.name not in parents and device.name in other.parents:
                    _graft(device.name, other, parents, bridges, sockets)
        devices: list[Gpu | Nic] = [*self.gpus, *self.nics]
        for device in devices:
            if device.name not in parents:
                same = [s.name for s in sockets if s.numa is not None and s.numa == device.numa]
                parents[device.name] = (same or [sockets[0].name])[0]
        return parents, tuple(bridges), tuple(sockets)

    def _first(self, what: str, tables: Sequence[Mapping]) -> dict:
        """Entry by entry, the most direct source's value; a difference is a finding."""
        result: dict = {}
        said: dict = {}
        for report, table in zip(self.reports, tables, strict=True):
            for key, value in table.items():
                mine = result.setdefault(key, value)
                known = said.setdefault(key, report.source)
                if (what == "P2P" and mine != value) or (what == "distance" and _differ(mine, value)):
                    self._disagree(f"{what} {'-'.join(key)}", key[0], (known, mine), (report.source, value))
        return result

    def _bundles(self) -> tuple[Bundle, ...] | None:
        """NVLink of the most direct source that shows it, GPU by GPU."""
        seen: dict[str, tuple[str, list[Bundle]]] = {}
        for report in self.reports:
            if report.hidden or (report.bundles is None and not report.paths):
                continue
            bundles = with_bundles(report).bundles or ()
            for gpu in report.gpus:
                mine = [bundle for bundle in bundles if bundle.gpu == gpu.name]
                if gpu.name not in seen:
                    seen[gpu.name] = report.source, mine
                    continue
                source, first = seen[gpu.name]
                if _lanes(first) != _lanes(mine):
                    one = source, f"{_lanes(first)} NVLinks"
                    self._disagree(f"NVLinks of {gpu.name}", gpu.name, one, (report.source, _lanes(mine)))
        if not seen:
            return None
        self.origin["nvlink"] = " + ".join(dict.fromkeys(source for source, _ in seen.values()))
        counts = Counter(gpu for gpu, (_, bundles) in seen.items() for _ in bundles)
        return tuple(bundle for gpu in counts for bundle in seen[gpu][1])


def _graft(name: str, other: Facts, parents: dict[str, str], bridges: list[Bridge], sockets: list[Socket]) -> None:
    """Add a device of another tree with what stands above it; bridges are the same by bus id, sockets by NUMA node."""
    above = other.parents[name]
    known = {bridge.name: bridge for bridge in other.bridges}
    if above not in known:
        socket = next((s for s in other.sockets if s.name == above), None)
        numa = socket.numa if socket else None
        same = next((s for s in sockets if s.numa == numa), None)
        if same is None:
            same = replace(socket or Socket(name=""), name=f"host{len(sockets)}")
            sockets.append(same)
        parents[name] = same.name
        return
    bridge = known[above]
    mine = next((b for b in bridges if b.pci and b.pci == bridge.pci), None)
    if mine is None:
        mine = replace(bridge, name=f"pcie{len(bridges)}")
        bridges.append(mine)
        renamed_tree = replace(other, parents={**other.parents, mine.name: other.parents[above]})
        _graft(mine.name, renamed_tree, parents, bridges, sockets)
    parents[name] = mine.name


def _lanes(bundles: Sequence[Bundle]) -> int:
    return sum(bundle.lanes for bundle in bundles if not bundle.chip)


def _same_nic(one: Nic, other: Nic) -> bool:
    if one.device and other.device:
        return one.device == other.device
    return bool(one.pci) and one.pci == other.pci


def _differ(one: object, other: object) -> bool:
    """Whether two paths say different distances, where both say one."""
    a, b = getattr(one, "distance", None), getattr(other, "distance", None)
    return a is not None and b is not None and a != b
