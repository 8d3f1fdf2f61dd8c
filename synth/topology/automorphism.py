"""Whether a permutation of the ranks is an automorphism of the machine: extended to devices, links and routes.

A permutation is extended to devices and links and checked link by link. Routes then follow it wherever one path is
the best by links and width alone. Where ids decide between equally good ones, a whole group is checked: what is taken
from one rank of each orbit must, moved by any element, stand before what is not taken. So no route of any other rank
need be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from synth.topology.group import Group
from synth.topology.model import Topology
from synth.topology.paths import preference
from synth.topology.routes import Routes

REFINEMENTS = 8
"""Steps of colour refinement; what it cannot tell apart is checked link by link all the same."""
MOST_TIES = 4_000_000
"""Groups that take choices by id to more than so many are not used."""


MOST_ROWS = 2048
"""Nor are those that leave more orbits of ranks."""


MOST_LISTED = 128
"""Groups that do not act freely are used up to so many elements."""


def under(routes: Routes, generators: np.ndarray) -> Routes | None:
    """The routes under the symmetries that some rank permutations make; None where they are none.

    Args:
        routes: among the ranks.
        generators: [generators, ranks] image of every rank.
    """
    group = Group.acting_freely(generators) or Group.of_most(generators, MOST_LISTED)
    if group is None:
        return None
    checker = Checker(routes)
    links = [checker.links_of(image) for image in generators]
    if any(image is None for image in links):
        return None
    group = replace(group, links=np.stack(links))  # type: ignore[arg-type]
    return routes.under(group) if checker.keeps_routes(group) else None


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
        self._leaving, self._entering, self._within = _Sum(self._src), _Sum(self._dst), _Sum(self._node)
        self._by_ends = np.lexsort((self._label, self._dst, self._src))
        rounds = list(self._refined(np.arange(routes.ranks)))
        self._sums = [_mix(colour).sum() for colour in rounds]
        self._plain, self._by_plain = rounds[-1], np.argsort(rounds[-1], kind="stable")
        *_, alike = self._refined(np.zeros(routes.ranks, dtype=np.int64))
        self._looks = alike[self._rank_device]

    def alike(self, order: np.ndarray) -> np.ndarray:
        """Those of the ranks, in order, that are on the nodes that look like most others.

        Where every node is different, those that look like most other ranks.
        """
        colour, node = self._looks[order], self._node[self._rank_device[order]]
        looks = {number: tuple(np.sort(colour[node == number]).tolist()) for number in dict.fromkeys(node.tolist())}
        most = Counter(looks.values()).most_common(1)[0][0]
        nodes = [number for number, look in looks.items() if look == most]
        if len(nodes) > 1:
            return np.asarray(order[np.isin(node, nodes)])
        _, first, which = np.unique(colour, return_index=True, return_inverse=True)
        largest = min(range(len(first)), key=lambda c: (-int((which == c).sum()), first[c]))
        return np.asarray(order[which == largest])

    def looks_alike(self, image: np.ndarray) -> bool:
        """Whether a permutation takes every rank to one that looks like it, as all automorphisms do."""
        return bool((self._looks[image] == self._looks).all())

    def links_of(self, image: np.ndarray) -> np.ndarray | None:
        """[links] where each link goes under a rank permutation; None where it is no automorphism of the links."""
        if not self.looks_alike(image):
            return None
        there = np.empty_like(image)
        there[image] = np.arange(len(image))  # rank image[i] takes the colour of rank i
        for sum_here, colour in zip(self._sums, self._refined(there), strict=True):
            if _mix(colour).sum() != sum_here:  # other colours than here, or not as many of each
                return None
        source, target = self._by_plain, np.argsort(colour, kind="stable")
        if not (self._plain[source] == colour[target]).all():
            return None
        device = np.empty(len(source), dtype=np.int64)
        device[source] = target
        if not (self._kind[device] == self._kind).all():
            return None
        if not (device[self._rank_device] == self._rank_device[image]).all():
            return None
        src, dst = device[self._src], device[self._dst]
        first, second = np.lexsort((self._label, dst, src)), self._by_ends
        same = (
            (src[first] == self._src[second]).all()
            and (dst[first] == self._dst[second]).all()
            and (self._label[first] == self._label[second]).all()
        )
        if not same:
            return None
        links = np.empty(len(first), dtype=np.int64)
        links[first] = second
        return links

    def keeps_routes(self, group: Group) -> bool:
        """Whether the route of every pair's image is the image of its route, under a group of link automorphisms."""
        if len(group.representatives) > MOST_ROWS:
            return False
        taken = [self.routes.row(rank).ties for rank in group.representatives.tolist()]
        choices = np.unique(np.concatenate(taken), axis=0)
        if not len(choices):
            return True
        count = len(self._label)
        place = np.empty(count, dtype=np.int64)
        place[sorted(range(count), key=lambda link: preference(self.routes.topology, link))] = np.arange(count)
        known = frontier = choices[:, 0] * count + choices[:, 1]
        while len(frontier):
            if not (place[frontier // count] < place[frontier % count]).all() or len(known) > MOST_TIES:
                return False
            moved = [links[frontier // count] * count + links[frontier % count] for links in group.links]
            frontier = np.setdiff1d(np.concatenate(moved), known)
            known = np.union1d(known, frontier)
        return True

    def _refined(self, rank_colour: np.ndarray) -> Iterator[np.ndarray]:
        """[devices] colours after each refinement of coloured ranks; equal ones are alike as far as this can see."""
        colour = _mix(self._kind + np.uint64(1))
        colour[self._rank_device] = _mix(rank_colour.astype(np.uint64) + np.uint64(1000))
        label = _mix(self._label.astype(np.uint64) + np.uint64(77))
        inside = self._node >= 0
        for _ in range(REFINEMENTS):
            seen = colour * np.uint64(3)
            self._leaving.add(seen, _mix(colour[self._dst] ^ label))
            self._entering.add(seen, _mix(colour[self._src] + label))
            together = np.zeros(self._node.max(initial=-1) + 2, dtype=np.uint64)
            self._within.add(together, _mix(colour))
            seen[inside] += _mix(together[self._node[inside]] + np.uint64(5))
            colour = _mix(seen)
            yield colour


class _Sum:
    """Adds values up by where they belong; faster than ``np.add.at``."""

    def __init__(self, place: np.ndarray) -> None:
        self._order = np.argsort(place, kind="stable")
        ordered = place[self._order]
        self._first = np.flatnonzero(np.r_[len(place) > 0, ordered[1:] != ordered[:-1]])
        self._place = ordered[self._first]

    def add(self, total: np.ndarray, values: np.ndarray) -> None:
        """Add to the totals."""
        if len(self._place):
            total[self._place] += np.add.reduceat(values[self._order], self._first)


def _nodes(topology: Topology) -> np.ndarray:
    """[devices] number of each device's node, -1 for none."""
    number = {node: position for position, node in enumerate(topology.nodes)}
    return np.array([-1 if d.node is None else number[d.node] for d in topology.devices], dtype=np.int64)


def _mix(value: np.ndarray) -> np.ndarray:
    """A hash of 64-bit numbers (the finaliser of splitmix64, Steele, Lea and Flood, 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
