"""A report with some devices left out, or called by other names, wherever they are mentioned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from probe.facts import Facts
from synth.topology import Finding


def only(report: Facts, names: set[str]) -> Facts:
    """The report without devices that were not matched."""
    lost = {device.name for device in report.devices} - names
    if not lost:
        return report
    return replace(
        report,
        gpus=tuple(gpu for gpu in report.gpus if gpu.name not in lost),
        nics=tuple(nic for nic in report.nics if nic.name not in lost),
        parents={name: parent for name, parent in report.parents.items() if name not in lost},
        paths={pair: path for pair, path in report.paths.items() if not lost & set(pair)},
        bundles=None
        if report.bundles is None
        else tuple(bundle for bundle in report.bundles if not lost & {bundle.gpu, bundle.peer}),
        ports={name: ports for name, ports in report.ports.items() if name not in lost},
        peers={pair: status for pair, status in report.peers.items() if not lost & set(pair)},
        fabric={name: state for name, state in report.fabric.items() if name not in lost},
    )


def renamed(report: Facts, names: Mapping[str, str]) -> Facts:
    """The report with its devices called as in the merged machine."""

    def new(name: str) -> str:
        return names.get(name, name)

    def told(noticed: Finding) -> Finding:
        left, dash, right = noticed.subject.partition("-")
        known = left in names and (not dash or right in names)
        return replace(noticed, subject=f"{new(left)}{dash}{new(right)}" if known else noticed.subject)

    report = only(report, set(names))
    order = {name: position for position, name in enumerate(names.values())}
    pairs = {
        (new(a), new(b)) if order[new(a)] < order[new(b)] else (new(b), new(a)): path
        for (a, b), path in report.paths.items()
    }
    return replace(
        report,
        gpus=tuple(replace(gpu, name=new(gpu.name)) for gpu in report.gpus),
        nics=tuple(replace(nic, name=new(nic.name)) for nic in report.nics),
        parents={new(name): parent for name, parent in report.parents.items()},
        paths=pairs,
        bundles=None
        if report.bundles is None
        else tuple(replace(b, gpu=new(b.gpu), peer=new(b.peer)) for b in report.bundles),
        ports={new(name): ports for name, ports in report.ports.items()},
        peers={(new(a), new(b)): status for (a, b), status in report.peers.items()},
        fabric={new(name): state for name, state in report.fabric.items()},
        doubtful=frozenset((new(a), new(b)) for a, b in report.doubtful),
        findings=tuple(told(noticed) for noticed in report.findings),
    )
