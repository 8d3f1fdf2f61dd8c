"""What changed between two topologies of the same machine or cluster."""

from __future__ import annotations

from dataclasses import dataclass

from synth.documents import Json
from synth.topology.model import Device, Link, Topology
from synth.units import format_rate


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        kind: ``device-added``, ``device-removed``, ``device-changed``, ``link-added``, ``link-removed``,
            ``link-changed``, ``finding-added`` or ``finding-gone``.
        subject: device id, ``src:dst`` of a link, or the finding's code and subject.
        before: what it was; None for what is new.
        after: what it is; None for what is gone.
    """

    kind: str
    subject: str
    before: str | None
    after: str | None

    def to_document(self) -> dict[str, Json]:
        """The change as plain JSON values."""
        values = {"kind": self.kind, "subject": self.subject, "before": self.before, "after": self.after}
        return {key: value for key, value in values.items() if value is not None}

    def __str__(self) -> str:
        sign = "+" if self.before is None else "-" if self.after is None else "~"
        told = " -> ".join(text for text in (self.before, self.after) if text)
        return f"{sign} {self.kind.partition('-')[0]} {self.subject}: {told}"


def diff(before: Topology, after: Topology) -> tuple[Change, ...]:
    """Differences in devices, links and findings, by id; names of the topologies and sources of links do not count."""
    changes = _devices(before, after)
    changes += _links(before, after)
    old = {(f.code, f.subject): f.message for f in before.findings}
    new = {(f.code, f.subject): f.message for f in after.findings}
    changes += [
        Change("finding-gone", f"{code} [{subject}]", old[code, subject], None)
        for code, subject in old
        if (code, subject) not in new
    ]
    changes += [
        Change("finding-added", f"{code} [{subject}]", None, new[code, subject])
        for code, subject in new
        if (code, subject) not in old
    ]
    return tuple(changes)


def _devices(before: Topology, after: Topology) -> list[Change]:
    old = {device.id: device for device in before.devices}
    new = {device.id: device for device in after.devices}
    changes = [Change("device-removed", id, _device(old[id]), None) for id in old if id not in new]
    changes += [Change("device-added", id, None, _device(new[id])) for id in new if id not in old]
    both = [id for id in old if id in new and old[id] != new[id]]
    changes += [Change("device-changed", id, _device(old[id]), _device(new[id])) for id in both]
    return changes


def _device(device: Device) -> str:
    numa = None if device.numa is None else f"NUMA {device.numa}"
    return ", ".join(text for text in (device.kind.value, device.model, device.pci, device.uuid, numa) if text)


def _links(before: Topology, after: Topology) -> list[Change]:
    old, new = _by_ends(before), _by_ends(after)
    changes = []
    for ends in old | new:
        was, now = old.get(ends), new.get(ends)
        if was is None or now is None:
            kind = "link-added" if was is None else "link-removed"
            changes.append(Change(kind, ends, _bundle(was) if was else None, _bundle(now) if now else None))
        elif _bundle(was) != _bundle(now):
            changes.append(Change("link-changed", ends, _bundle(was), _bundle(now)))
    return changes


def _by_ends(topology: Topology) -> dict[str, list[Link]]:
    rows: dict[str, list[Link]] = {}
    for link in topology.links:
        rows.setdefault(f"{link.src}:{link.dst}", []).append(link)
    return rows


def _bundle(links: list[Link]) -> str:
    shown = [f"{link.link_class.value} {format_rate(link.bytes_per_s)} {link.latency_ns:g} ns" for link in links]
    return " and ".join(sorted(shown))
