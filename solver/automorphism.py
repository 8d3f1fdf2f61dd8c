"""Whether a permutation of the ranks is an automorphism of the machine: extended to devices, links and routes."""

from __future__ import annotations

import numpy as np

from synth.topology import Routes, Topology

REFINEMENTS = 8
"""Steps of colour refinement; what it cannot tell apart is checked link by link all the same."""


class Checker:
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
        self._looks = self._refined(np.zeros(routes.ranks, dtype=np.int64))[self._rank_device]

    def alike(self, order: np.ndarray) -> np.ndarray:
        """Those of the ranks, in order, that are on the nodes that look like most others.

        Where every node is different, those that look like most other ranks.
        """
        colour, node = self._looks[order], self._node[self._rank_device[order]]
        looks = {number: tuple(np.sort(colour[node == number]).tolist()) for number in dict.fromkeys(node.tolist())}
        most = max(looks.values(), key=list(looks.values()).count)
        nodes = [number for number, look in looks.items() if look == most]
        if len(nodes) > 1:
            return np.asarray(order[np.isin(node, nodes)])
        _, first, which = np.unique(colour, return_index=True, return_inverse=True)
        largest = min(range(len(first)), key=lambda c: (-int((which == c).sum()), first[c]))
        return np.asarray(order[which == largest])

    def links_of(self, image: np.ndarray) -> np.ndarray | None:
        """[links] where each link goes under a rank permutation; None where it is no automorphism."""
        if not (self._looks[image] == self._looks).all():
            return None
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
