"""From distances to a PCIe tree: which devices share a bridge, which share a socket.

Distances of a tree are ultrametric: of any three devices, the two farthest pairs are equally far. So devices closer
than some class form disjoint groups, and the groups of each class are the subtrees. What breaks this is a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from probe.facts import Bridge, Distance, Facts, PcieLink, Socket
from probe.findings import finding
from synth.topology import Finding
from synth.topology.model import abridge


def with_tree(facts: Facts) -> Facts:
    """The same facts with bridges, sockets and parents, derived from the paths where the source gave no tree."""
    if facts.parents:
        return facts
    names = [gpu.name for gpu in facts.gpus] + [nic.name for nic in facts.nics]
    distances = _matrix(facts, names)
    findings = _contradictions(facts, names, distances)
    homes = _sockets(facts, names, distances)
    sockets = _socket_facts(facts, names, homes)
    parents: dict[str, str] = {}
    bridges: list[Bridge] = []
    for group in _groups(names, distances, Distance.PXB, homes):
        above = homes[group[0]]
        leaves = _groups(group, _sub(distances, names, group), Distance.PIX, homes)
        if len(group) > 1 and len(leaves) > 1:
            bridges.append(Bridge(name=f"pcie{len(bridges)}", pcie=_fastest(facts, group)))
            parents[bridges[-1].name] = f"host{above}"
            above_name = bridges[-1].name
        else:
            above_name = f"host{above}"
        for leaf in leaves:
            if len(leaf) > 1:
                bridges.append(Bridge(name=f"pcie{len(bridges)}", pcie=_fastest(facts, leaf)))
                parents[bridges[-1].name] = above_name
            for name in leaf:
                parents[name] = bridges[-1].name if len(leaf) > 1 else above_name
    return replace(
        facts,
        bridges=tuple(bridges),
        sockets=sockets,
        parents=parents,
        findings=facts.findings + tuple(findings),
    )


def _matrix(facts: Facts, names: Sequence[str]) -> np.ndarray:
    """[devices, devices] distance classes; 0 unknown (NVLink hides the class, or the pair was not read)."""
    place = {name: position for position, name in enumerate(names)}
    distances = np.zeros((len(names), len(names)), dtype=np.int8)
    for (a, b), path in facts.paths.items():
        if path.distance is not None:
            distances[place[a], place[b]] = distances[place[b], place[a]] = path.distance
    return distances


def _sub(distances: np.ndarray, names: Sequence[str], group: Sequence[str]) -> np.ndarray:
    chosen = [names.index(name) for name in group]
    return distances[np.ix_(chosen, chosen)]


def _fastest(facts: Facts, group: Iterable[str]) -> PcieLink:
    """A bridge runs at least as fast as the fastest device below it, as far as that is known."""
    inside = set(group)
    links = [device.pcie for device in facts.devices if device.name in inside and device.pcie.gts]
    return max(links, key=lambda link: link.gts * link.width, default=PcieLink())


def _groups(names: Sequence[str], distances: np.ndarray, most: Distance, homes: Mapping[str, int]) -> list[list[str]]:
    """Devices joined by distances of at most ``most`` inside one socket, in order of first appearance."""
    near = (distances > 0) & (distances <= most)
    home = np.array([homes[name] for name in names])
    near &= home[:, None] == home[None, :]
    return [[names[p] for p in group] for group in _components(near)]


def _components(joined: np.ndarray) -> list[list[int]]:
    seen: set[int] = set()
    groups = []
    for start in range(len(joined)):
        if start in seen:
            continue
        group, frontier = {start}, [start]
        while frontier:
            onward = [int(p) for p in np.flatnonzero(joined[frontier].any(axis=0)) if p not in group]
            group.update(onward)
            frontier = onward
        seen |= group
        groups.append(sorted(group))
    return groups


def _sockets(facts: Facts, names: Sequence[str], distances: np.ndarray) -> dict[str, int]:
    """Socket number of each device, from NUMA nodes where they are known and from distances otherwise."""
    near = (distances > 0) & (distances < Distance.SYS)
    numa: dict[int, int] = {}
    for position, device in enumerate(facts.devices):
        if device.numa is not None:
            numa[position] = device.numa
    if numa:
        _spread(numa, distances, near)
    keys: dict[int, object] = {position: ("numa", node) for position, node in numa.items()}
    rest = [position for position in range(len(names)) if position not in keys]
    cpus = {position: gpu.cpus for position, gpu in enumerate(facts.gpus)}
    joined = near.copy()
    for a in rest:
        for b in rest:
            if cpus.get(a) and cpus.get(a) == cpus.get(b) and distances[a, b] == 0:
                joined[a, b] = True
    loose = np.ix_(rest, rest)
    groups = _split_by_far(_components(joined[loose]), near[loose], distances[loose])
    known_cpus = [cpus.get(position) for position in rest]
    for group in _merge_unless_far(groups, distances[loose], known_cpus):
        for member in group:
            keys[rest[member]] = ("rest", rest[group[0]])
    if len(facts.gpus) > 1 and not facts.paths:
        keys = {position: ("numa", numa.get(position, 0)) for position in range(len(names))}
    numbers: dict[object, int] = {}
    order = sorted(set(keys.values()), key=str) if numa else [keys[p] for p in range(len(names))]
    for key in order:
        numbers.setdefault(key, len(numbers))
    return {name: numbers[keys[position]] for position, name in enumerate(names)}


def _spread(numa: dict[int, int], distances: np.ndarray, near: np.ndarray) -> None:
    """Give devices without a NUMA node that of the nearest device that has one, unless all such are SYS away."""
    while True:
        found: dict[int, int] = {}
        for position in range(len(distances)):
            if position in numa:
                continue
            known = [(distances[position, other], other) for other in numa if near[position, other]]
            if known:
                found[position] = numa[min(known)[1]]
        if not found:
            return
        numa.update(found)


def _split_by_far(groups: list[list[int]], near: np.ndarray, distances: np.ndarray) -> list[list[int]]:
    """Undo groups that equal CPU lists joined although members are SYS apart (a batch job's CPUs say nothing)."""
    result: list[list[int]] = []
    for group in groups:
        inside = distances[np.ix_(group, group)]
        if (inside == Distance.SYS).any():
            result += [[group[m] for m in part] for part in _components(near[np.ix_(group, group)])]
        else:
            result.append(group)
    return result


def _merge_unless_far(groups: list[list[int]], distances: np.ndarray, cpus: Sequence[str | None]) -> list[list[int]]:
    """Put groups in one socket where nothing says that they are apart: no SYS between them, no different CPU lists."""
    merged: list[list[int]] = []
    for group in groups:
        for other in merged:
            lists = {cpus[member] for member in (*group, *other)} - {None}
            if len(lists) <= 1 and not (distances[np.ix_(group, other)] == Distance.SYS).any():
                other.extend(group)
                break
        else:
            merged.append(list(group))
    return merged


def _socket_facts(facts: Facts, names: Sequence[str], homes: Mapping[str, int]) -> tuple[Socket, ...]:
    sockets = []
    for number in sorted(set(homes.values())):
        gpus = [gpu for gpu in facts.gpus if homes[gpu.name] == number]
        numa = {device.numa for device in facts.devices if homes[device.name] == number}
        sockets.append(
            Socket(
                name=f"host{number}",
                numa=min((node for node in numa if node is not None), default=None),
                cpus=next((gpu.cpus for gpu in gpus if gpu.cpus), None),
            )
        )
    return tuple(sockets)


def _contradictions(facts: Facts, names: Sequence[str], distances: np.ndarray) -> list[Finding]:
    found = []
    broken = _not_a_tree(names, distances)
    if broken:
        found.append(
            finding(
                "distance-contradiction",
                broken[0],
                f"distances are not those of a tree: {abridge(broken, 3)} are farther apart than over a third device",
            )
        )
    numa = [device.numa for device in facts.devices]
    across, inside = [], []
    for (a, b), path in facts.paths.items():
        left, right = numa[names.index(a)], numa[names.index(b)]
        if left is None or right is None or path.distance is None:
            continue
        if left != right and path.distance < Distance.SYS:
            across.append(f"{a}-{b}")
        elif left == right and path.distance == Distance.SYS:
            inside.append(f"{a}-{b}")
    if across:
        found.append(
            finding(
                "distance-contradiction",
                across[0],
                f"{abridge(across, 3)} are closer than SYS although they hang on different NUMA nodes; "
                "the NUMA nodes were used",
            )
        )
    if inside:
        found.append(
            finding(
                "all-sys",
                inside[0],
                f"{abridge(inside, 3)} are SYS apart inside one NUMA node, so the class cannot tell near from far; "
                "NUMA nodes were used as sockets",
            )
        )
    return found


def _not_a_tree(names: Sequence[str], distances: np.ndarray) -> list[str]:
    """Pairs farther apart than the way over some third device allows."""
    far = np.where(distances == 0, 99, distances)
    broken = np.zeros(distances.shape, dtype=bool)
    for middle in range(len(names)):
        over = np.maximum(far[:, middle][:, None], far[middle][None, :])
        broken |= (distances > 0) & (distances > over)
    return [f"{names[a]}-{names[b]}" for a, b in np.argwhere(broken) if a < b]
