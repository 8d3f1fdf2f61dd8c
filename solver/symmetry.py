"""Symmetries of a machine that plans may use: rank permutations that no link and no route can tell apart.

Candidates are rotations of equal blocks of ranks (nodes among nodes, GPUs inside nodes, translations of a torus) and
turns of a mesh. Each is extended to all devices and links and then checked, hop by hop and route by route, so what is
accepted is an automorphism whatever the guess was worth. Accepted ones are combined as long as the group acts freely on
the ranks: then the images of one representative per orbit give every rank exactly one slice, and loads are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from synth.collective import Collective, Demand
from synth.plan import Symmetry
from synth.topology import Routes, Topology

REFINEMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """A group of automorphisms that acts freely on the ranks.

    Attributes:
        generators: [generators, ranks] image of every rank.
        order: how many elements the group has.
        representatives: one rank per orbit, the smallest.
        link_orbit: [links] orbit of each link.
    """

    generators: np.ndarray
    order: int
    representatives: np.ndarray
    link_orbit: np.ndarray

    @property
    def symmetry(self) -> Symmetry:
        """As plans state it."""
        return Symmetry(tuple(tuple(image) for image in self.generators.tolist()), self.order)


def find_group(routes: Routes, demand: Demand) -> Group | None:
    """The largest group found under which the machine and the demand look the same; None where there is none."""
    if demand.collective not in (
        Collective.ALLTOALL,
        Collective.ALLGATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALLREDUCE,
    ):
        return None
    if routes.ranks != demand.ranks:
        return None
    checker = _Checker(routes)
    elements: dict[int, np.ndarray] = {0: np.arange(routes.ranks)}
    generators: list[np.ndarray] = []
    link_images: list[np.ndarray] = []
    for image in _candidates(_device_order(routes)):
        if image[0] in elements and (elements[int(image[0])] == image).all():
            continue
        if demand.matrix is not None and not (demand.matrix[np.ix_(image, image)] == demand.matrix).all():
            continue
        wider = _closure(elements, [*generators, image])
        if wider is None:
            continue
        links = checker.links_of(image)
        if links is None:
            continue
        elements = wider
        generators.append(image)
        link_images.append(links)
    if not generators:
        return None
    return Group(
        generators=np.stack(generators),
        order=len(elements),
        representatives=np.flatnonzero(_orbits(generators, routes.ranks, smallest=True)),
        link_orbit=_orbits(link_images, len(routes.topology.links)),
    )


def _device_order(routes: Routes) -> np.ndarray:
    """Ranks in the topology's order of devices."""
    return np.argsort([routes.topology.index[device] for device in routes.devices], kind="stable")


def _candidates(order: np.ndarray) -> list[np.ndarray]:
    """Rotations by s inside consecutive blocks of B ranks, the longest cycles first, then turns of a mesh."""
    count = len(order)
    position = np.arange(count)
    found = []
    side = round(count**0.5)
    turns = [position[::-1]]
    if side * side == count:
        turns.insert(0, position % side * side + side - 1 - position // side)
    for block in (b for b in range(2, count + 1) if count % b == 0):
        for step in (s for s in range(1, block) if block % s == 0):
            moved = position // block * block + (position % block + step) % block
            image = np.empty(count, dtype=np.int64)
            image[order] = order[moved]
            found.append((-(block // step), block, step, image))
    images = [image for *_, image in sorted(found, key=lambda item: item[:3])]
    for moved in turns:
        image = np.empty(count, dtype=np.int64)
        image[order] = order[moved]
        images.append(image)
    return images


def _closure(elements: dict[int, np.ndarray], generators: list[np.ndarray]) -> dict[int, np.ndarray] | None:
    """All products, by the image of rank 0; None where some product fixes a rank."""
    ranks = len(generators[0])
    positions = np.arange(ranks)
    found = {0: positions}
    frontier = [positions]
    while frontier:
        following = []
        for element in frontier:
            for generator in generators:
                product = generator[element]
                known = found.get(int(product[0]))
                if known is None:
                    if (product == positions).any():
                        return None
                    found[int(product[0])] = product
                    following.append(product)
                elif not (known == product).all():
                    return None  # two elements agree on rank 0, so their quotient fixes a rank
        frontier = following
    return found


def _orbits(images: list[np.ndarray], count: int, *, smallest: bool = False) -> np.ndarray:
    """[count] label of each item's orbit, or whether it is the smallest of its orbit."""
    rows = np.tile(np.arange(count), len(images))
    graph = sparse.coo_matrix((np.ones(len(rows)), (rows, np.concatenate(images))), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    if not smallest:
        return np.asarray(label)
    first = np.zeros(count, dtype=bool)
    first[np.unique(label, return_index=True)[1]] = True
    return first


class _Checker:
    """Extends rank permutations to devices and links, and checks them."""

    def __init__(self, routes: Routes) -> None:
        topology = routes.topology
        self.routes = routes
        self._src = np.array([topology.index[link.src] for link in topology.links], dtype=np.int64)
        self._dst = np.array([topology.index[link.dst] for link in topology.links], dtype=np.int64)
        facts = [(link.link_class.value, link.bytes_per_s, link.latency_ns) for link in topology.links]
        table = {fact: number for number, fact in enumerate(sorted(set(facts)))}
        self._label = np.array([table[fact] for fact in facts], dtype=np.int64)
        kinds = {kind: number for number, kind in enumerate(sorted({device.kind for device in topology.devices}))}
        self._kind = np.array([kinds[device.kind] for device in topology.devices], dtype=np.uint64)
        self._node = _nodes(topology)
        self._rank_device = np.array([topology.index[device] for device in routes.devices], dtype=np.int64)
        self._plain = self._refined(np.arange(routes.ranks))

    def links_of(self, image: np.ndarray) -> np.ndarray | None:
        """[links] where each link goes under a rank permutation; None where it is no automorphism."""
        there = np.empty_like(image)
        there[image] = np.arange(len(image))  # rank image[i] takes the colour of rank i
        coloured = self._refined(there)
        here, target = np.argsort(self._plain, kind="stable"), np.argsort(coloured, kind="stable")
        if not (self._plain[here] == coloured[target]).all():
            return None
        device = np.empty(len(here), dtype=np.int64)
        device[here] = target
        first = np.lexsort((self._label, device[self._dst], device[self._src]))
        second = np.lexsort((self._label, self._dst, self._src))
        same = (
            (device[self._src[first]] == self._src[second]).all()
            and (device[self._dst[first]] == self._dst[second]).all()
            and (self._label[first] == self._label[second]).all()
        )
        if not same:
            return None
        links = np.empty(len(first), dtype=np.int64)
        links[first] = second
        return links if self._keeps_routes(image, links) else None

    def _keeps_routes(self, image: np.ndarray, links: np.ndarray) -> bool:
        """Whether the route of every pair's image is the image of its route."""
        routes = self.routes
        pairs = (image[:, None] * routes.ranks + image[None, :]).ravel()
        sizes = np.diff(routes.starts)
        if not (sizes[pairs] == sizes).all():
            return False
        _, crossed = routes.incidence(pairs)
        return bool((crossed == links[routes.links]).all())

    def _refined(self, rank_colour: np.ndarray) -> np.ndarray:
        """[devices] colours after refinement from coloured ranks; equal colours are alike as far as this can see."""
        colour = _mix(self._kind + np.uint64(1))
        colour[self._rank_device] = _mix(rank_colour.astype(np.uint64) + np.uint64(1000))
        label = _mix(self._label.astype(np.uint64) + np.uint64(77))
        for _ in range(REFINEMENTS):
            seen = colour * np.uint64(3)
            np.add.at(seen, self._src, _mix(colour[self._dst] ^ label))
            np.add.at(seen, self._dst, _mix(colour[self._src] + label))
            together = np.zeros(self._node.max(initial=-1) + 2, dtype=np.uint64)
            np.add.at(together, self._node, _mix(colour))
            inside = self._node >= 0
            seen[inside] += _mix(together[self._node[inside]] + np.uint64(5))
            colour = _mix(seen)
        return colour


def _nodes(topology: Topology) -> np.ndarray:
    """[devices] number of each device's node, -1 for none."""
    number = {node: position for position, node in enumerate(topology.nodes)}
    return np.array([-1 if d.node is None else number[d.node] for d in topology.devices], dtype=np.int64)


def _mix(value: np.ndarray) -> np.ndarray:
    """A hash of 64-bit numbers (the finaliser of splitmix64, Steele, Lea and Flood, 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
