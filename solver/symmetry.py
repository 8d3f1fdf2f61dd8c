"""Symmetries of a machine that plans may use: rank permutations that no link and no route can tell apart.

Candidates are rotations of equal blocks of ranks (nodes among nodes, GPUs inside nodes, translations of a torus),
turns and mirrors of a mesh, and the same among the ranks that look alike while all others stay where they are. Each
is extended to all devices and links and then checked, hop by hop and route by route, so what is accepted is an
automorphism whatever the guess was worth. Accepted ones are combined as long as every element but the identity fixes
the same ranks, none where the machine is whole: then the images of one representative per orbit give every other rank
exactly one slice, and loads are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from solver.automorphism import Checker
from synth.collective import Collective, Demand
from synth.plan import Symmetry
from synth.topology import Routes

PARTIAL = 24
"""Beyond so many ranks symmetries that fix some are used; smaller machines are solved as quickly without, and their
plans then have fewer chunks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """A group of automorphisms that acts freely on the ranks, but for those that all of them fix.

    Attributes:
        generators: [generators, ranks] image of every rank.
        elements: [order, ranks] image of every rank under each element, the identity first.
        fixed: [ranks] whether every element leaves the rank where it is.
        representatives: one rank per orbit, the smallest; every fixed rank is its own.
        link_orbit: [links] orbit of each link.
    """

    generators: np.ndarray
    elements: np.ndarray
    fixed: np.ndarray
    representatives: np.ndarray
    link_orbit: np.ndarray

    @property
    def order(self) -> int:
        """How many elements the group has."""
        return len(self.elements)

    @property
    def free(self) -> bool:
        """Whether no rank is fixed, as plans that state a symmetry must have it."""
        return not self.fixed.any()

    @property
    def symmetry(self) -> Symmetry:
        """As plans state it."""
        return Symmetry(tuple(tuple(image) for image in self.generators.tolist()), self.order)


def find_group(routes: Routes, demand: Demand) -> Group | None:
    """The largest group found under which the machine and the demand look the same; None where there is none.

    A group that fixes no rank is taken before any that does.
    """
    if demand.collective not in (
        Collective.ALLTOALL,
        Collective.ALLGATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALLREDUCE,
    ):
        return None
    if routes.ranks != demand.ranks:
        return None
    checker = Checker(routes)
    everyone = device_order(routes)
    whole = [*rotations(everyone, routes.ranks), *_turns(everyone)]
    found = _combined([image for image in whole if not _fixes(image)], checker, demand)
    if found is not None or routes.ranks <= PARTIAL:
        return found
    some = [
        _combined(images, checker, demand)
        for images in (_turns(everyone), rotations(checker.alike(everyone), routes.ranks))
    ]
    return max((group for group in some if group is not None), key=lambda group: group.order, default=None)


def _combined(candidates: Iterable[np.ndarray], checker: Checker, demand: Demand) -> Group | None:
    """The group of those candidates that are automorphisms and go together."""
    ranks = demand.ranks
    elements = np.arange(ranks)[None]
    generators: list[np.ndarray] = []
    link_images: list[np.ndarray] = []
    for image in candidates:
        if (elements == image).all(axis=1).any():
            continue
        if demand.matrix is not None and not (demand.matrix[np.ix_(image, image)] == demand.matrix).all():
            continue
        wider = _closure([*generators, image])
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
        elements=elements,
        fixed=generators[0] == np.arange(ranks),
        representatives=np.flatnonzero(orbits(generators, ranks, smallest=True)),
        link_orbit=orbits(link_images, len(checker.routes.topology.links)),
    )


def _fixes(image: np.ndarray) -> bool:
    """Whether some rank stays where it is."""
    return bool((image == np.arange(len(image))).any())


def device_order(routes: Routes) -> np.ndarray:
    """Ranks in the topology's order of devices."""
    return np.argsort([routes.topology.index[device] for device in routes.devices], kind="stable")


def rotations(order: np.ndarray, ranks: int) -> list[np.ndarray]:
    """Rotations by s inside consecutive blocks of B of the given ranks, the longest cycles first."""
    count = len(order)
    position = np.arange(count)
    found = []
    for block in (b for b in range(2, count + 1) if count % b == 0):
        for step in (s for s in range(1, block) if block % s == 0):
            moved = position // block * block + (position % block + step) % block
            found.append((-(block // step), block, step, _permuted(order, moved, ranks)))
    return [image for *_, image in sorted(found, key=lambda item: item[:3])]


def _turns(order: np.ndarray) -> list[np.ndarray]:
    """Quarter and half turn of a mesh, then mirrors: the order reversed inside blocks, or that of the blocks."""
    count = len(order)
    position = np.arange(count)
    side = round(count**0.5)
    moves = [position[::-1]]
    if side * side == count:
        moves.insert(0, position % side * side + side - 1 - position // side)
    for block in (b for b in range(2, count) if count % b == 0):
        moves.append(position // block * block + block - 1 - position % block)
        moves.append((count // block - 1 - position // block) * block + position % block)
    return [_permuted(order, moved, count) for moved in moves]


def _permuted(order: np.ndarray, moved: np.ndarray, ranks: int) -> np.ndarray:
    """[ranks] the permutation that takes the i-th of the ordered ranks to the ``moved[i]``-th; others stay."""
    image = np.arange(ranks)
    image[order] = order[moved]
    return image


def _closure(generators: list[np.ndarray]) -> np.ndarray | None:
    """[order, ranks] all products, the identity first; None where two elements fix different ranks.

    Elements are told apart by where they take one rank that the first generator moves.
    """
    positions = np.arange(len(generators[0]))
    fixed = generators[0] == positions
    moving = int(np.argmin(fixed))
    found = {moving: positions}
    frontier = [positions]
    while frontier:
        following = []
        for element in frontier:
            for generator in generators:
                product = generator[element]
                known = found.get(int(product[moving]))
                if known is None:
                    if not ((product == positions) == fixed).all():
                        return None
                    found[int(product[moving])] = product
                    following.append(product)
                elif not (known == product).all():
                    return None  # two elements agree on one moving rank, so their quotient fixes it
        frontier = following
    return np.stack(list(found.values()))


def orbits(images: list[np.ndarray], count: int, *, smallest: bool = False) -> np.ndarray:
    """[count] label of each item's orbit, or whether it is the smallest of its orbit."""
    rows = np.tile(np.arange(count), len(images))
    graph = sparse.coo_matrix((np.ones(len(rows)), (rows, np.concatenate(images))), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    if not smallest:
        return np.asarray(label)
    first = np.zeros(count, dtype=bool)
    first[np.unique(label, return_index=True)[1]] = True
    return first
