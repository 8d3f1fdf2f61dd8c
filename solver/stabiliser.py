"""Symmetries of a machine that leave the root of a broadcast or a reduce where it is.

Every image of a tree from the root is a tree from the root, and a tree that is shared out evenly among its images loads
all links of an orbit alike. So any group of automorphisms that fix the root serves, whatever else its elements fix. Few
orbits of links keep the linear program small, few elements keep the plan small: symmetries are taken one by one while
they merge orbits. All are checked as those of :mod:`solver.symmetry` are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solver.symmetry import device_order, rotations
from synth.topology import Routes
from synth.topology.automorphism import Checker
from synth.topology.group import Group, orbit_labels

MOST = 128
"""Groups have at most so many elements."""
MERGES = 0.8
"""A symmetry is taken when it leaves at most this part of the orbits of links."""


def find_stabiliser(routes: Routes, root: int) -> Group | None:
    """A group under which the machine looks the same from the root; None where there is none."""
    checker = Checker(routes)
    found: Group | None = None
    orbits = len(routes.topology.links)
    for image in _candidates(routes, root):
        if found is not None and (found.elements == image).all(axis=1).any():
            continue
        links = checker.links_of(image)
        if links is None:
            continue
        images = np.stack([links] if found is None else [*found.links, links])
        merged = int(orbit_labels(images).max(initial=-1)) + 1
        if merged > MERGES * orbits:
            continue
        wider = Group.of_most(np.stack([image] if found is None else [*found.generators, image]), MOST)
        if wider is None:
            continue
        wider = replace(wider, links=images)
        if checker.keeps_routes(wider):
            found, orbits = wider, merged
    return found


def _candidates(routes: Routes, root: int) -> Iterator[np.ndarray]:
    """Permutations that fix the root: of the other nodes, of places in all nodes, inside the other nodes, of a grid."""
    order, ranks = device_order(routes), routes.ranks
    names = [routes.topology.device(id).node for id in routes.devices]
    node = np.unique([name or "" for name in names], return_inverse=True)[1]
    elsewhere = order[node[order] != node[root]]
    turns = list(rotations(elsewhere, ranks))
    yield from (turn for turn in turns if (node[turn] != node)[elsewhere].all())
    position = int(np.flatnonzero(order == root)[0])
    sizes = np.bincount(node)
    if (sizes == sizes[0]).all():
        yield from (_permuted(order, moved) for moved in _places(ranks, int(sizes[0]), position))
    yield from turns
    yield from (_permuted(order, moved) for moved in _mirrors(ranks, position))


def _places(count: int, size: int, centre: int) -> Iterator[np.ndarray]:
    """Rotations of the places inside blocks of a size, the same in all blocks, but for the place of one position."""
    position = np.arange(count)
    for moved in rotations(np.delete(np.arange(size), centre % size), size):
        yield position // size * size + moved[position % size]


def _mirrors(count: int, centre: int) -> Iterator[np.ndarray]:
    """Mirrors of one coordinate of a grid or a torus, and swaps of two, that fix one position."""
    position = np.arange(count)
    steps = [step for step in range(1, count) if count % step == 0]
    axes = [(step, side) for step in steps for side in range(2, count // step + 1) if count // step % side == 0]
    for step, side in axes:
        here, middle = position // step % side, centre // step % side
        yield position + ((2 * middle - here) % side - here) * step
        for other in (wider for wider, same in axes if same == side and wider % (step * side) == 0):
            there = position // other % side
            across = there - centre // other % side - (here - middle)
            first, second = (here + across) % side, (there - across) % side
            yield position + (first - here) * step + (second - there) * other


def _permuted(order: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """[ranks] the permutation of ranks that takes the i-th in order to the ``moved[i]``-th."""
    image = np.empty_like(order)
    image[order] = order[moved]
    return image
