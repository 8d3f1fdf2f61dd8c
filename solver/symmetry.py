"""Symmetries of a machine that plans may use: rank permutations that no link and no route can tell apart.

Candidates are rotations of equal blocks of ranks (nodes among nodes, GPUs inside nodes, translations of a torus),
turns and mirrors of a mesh, and the same among the ranks that look alike while all others stay where they are. Each
is extended to all devices and links and then checked, link by link and wherever ids decided a route, so what is
accepted is an automorphism whatever the guess was worth (:mod:`synth.topology.automorphism`). Accepted ones are
combined as long as every element but the identity fixes the same ranks, none where the machine is whole: then the
images of one representative per orbit give every other rank exactly one slice, and loads are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from synth.collective import Collective, Demand
from synth.topology import Routes
from synth.topology.automorphism import Checker
from synth.topology.group import Group

PARTIAL = 24
"""Beyond so many ranks symmetries that fix some are used; smaller machines are solved as quickly without, and their
plans then have fewer chunks."""


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
    whole = [image for image in (*rotations(everyone, routes.ranks), *_turns(everyone)) if not _fixes(image)]
    found = _combined(whole, checker, demand)
    if found is not None or routes.ranks <= PARTIAL:
        return found
    some = [
        _combined(images, checker, demand)
        for images in (_turns(everyone), list(rotations(checker.alike(everyone), routes.ranks)))
    ]
    return max((group for group in some if group is not None), key=lambda group: group.order, default=None)


def _combined(candidates: Sequence[np.ndarray], checker: Checker, demand: Demand) -> Group | None:
    """The group of those candidates that are automorphisms and go together.

    Whether routes follow is asked of the whole group, which needs the routes of fewest ranks; where they do not, of
    every candidate.
    """
    found = _grown(candidates, checker, demand)
    if found is None or checker.keeps_routes(found):
        return found
    return _grown(candidates, checker, demand, routes=True)


def _grown(candidates: Iterable[np.ndarray], checker: Checker, demand: Demand, *, routes: bool = False) -> Group | None:
    found: Group | None = None
    for image in candidates:
        if demand.matrix is not None and not (demand.matrix[np.ix_(image, image)] == demand.matrix).all():
            continue
        if not checker.looks_alike(image) or not (found is None or found.may_grow_by(image)):
            continue
        links = checker.links_of(image)
        if links is None:
            continue
        wider = Group.acting_freely(np.stack([image] if found is None else [*found.generators, image]))
        if wider is None or (found is not None and wider.order == found.order):
            continue
        wider = replace(wider, links=np.stack([links] if found is None else [*found.links, links]))
        if routes and not checker.keeps_routes(wider):
            continue
        found = wider
        if found.order == demand.ranks:
            break
    return found


def _fixes(image: np.ndarray) -> bool:
    """Whether some rank stays where it is."""
    return bool((image == np.arange(len(image))).any())


def device_order(routes: Routes) -> np.ndarray:
    """Ranks in the topology's order of devices."""
    return np.argsort([routes.topology.index[device] for device in routes.devices], kind="stable")


def rotations(order: np.ndarray, ranks: int) -> Iterator[np.ndarray]:
    """Rotations by s inside consecutive blocks of B of the given ranks, the longest cycles first."""
    count = len(order)
    position = np.arange(count)
    blocks = [block for block in range(2, count + 1) if count % block == 0]
    kinds = [(-(block // step), block, step) for block in blocks for step in range(1, block) if block % step == 0]
    for _, block, step in sorted(kinds):
        yield _permuted(order, position // block * block + (position % block + step) % block, ranks)


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
