"""A group of rank permutations, known by its generators: elements are numbered and applied, hardly ever written out.

A group **acts freely** on the ranks, but for those that all of it fixes, when no element but the identity leaves any
other rank where it is. An element is then known by where it takes one rank, and all orbits are copies of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

KEPT = 1024
"""So many ranks' images are kept once they were asked for."""

FEW = 9
"""So many ranks tell most permutations apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """See above. Element 0 is the identity; element k > 0 is generator ``via[k]`` after element ``before[k]``.

    Attributes:
        generators: [generators, ranks] image of every rank.
        before: [order] a smaller element each is made from.
        via: [order] the generator that makes it.
        links: [generators, links] image of every link of a topology.
    """

    generators: np.ndarray
    before: np.ndarray
    via: np.ndarray
    links: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    _images: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def acting_freely(cls, generators: np.ndarray) -> Group | None:
        """The group of some permutations, [generators, ranks]; None where it does not act freely as said above.

        On one orbit it does if and only if the maps that commute with all generators and take its first rank to the
        images of that exist; all other orbits must then be copies. So generators are all that is looked at, in time
        generators^2 x ranks.
        """
        ranks = generators.shape[1]
        moved = (generators != np.arange(ranks)).any(axis=0)
        if not moved.any():
            return None
        before, via, step = _reached_from(int(np.argmax(moved)), generators.tolist())
        if moved.sum() % len(before):
            return None
        group = cls(generators=generators, before=before, via=via)
        orbits = group.carried(np.flatnonzero(moved & group.smallest))
        if orbits.size != moved.sum() or len(np.unique(orbits)) != orbits.size:
            return None
        right = step[:, :1].repeat(len(before), axis=1)  # every element after each generator, if the maps exist
        for now in group._levels:
            right[:, now] = step[via[now], right[:, before[now]]]
        for generator, number in zip(generators, step, strict=True):
            if not (generator[orbits] == orbits[:, number]).all() or not (number[right] == right[:, number]).all():
                return None
        return group

    @classmethod
    def of_most(cls, generators: np.ndarray, most: int) -> Group | None:
        """The group of some permutations, [generators, ranks], whatever its elements fix; None beyond so many."""
        known = {np.arange(generators.shape[1]).tobytes()}
        elements, before, via = [np.arange(generators.shape[1])], [0], [0]
        for position, element in enumerate(elements):  # which grows
            for which, generator in enumerate(generators):
                product = generator[element]
                if product.tobytes() not in known:
                    known.add(product.tobytes())
                    elements.append(product)
                    before.append(position)
                    via.append(which)
            if len(elements) > most:
                return None
        return cls(generators=generators, before=np.array(before), via=np.array(via))

    @property
    def order(self) -> int:
        """How many elements it has."""
        return len(self.before)

    @cached_property
    def fixed(self) -> np.ndarray:
        """[ranks] whether every element leaves the rank where it is."""
        return np.asarray((self.generators == np.arange(self.generators.shape[1])).all(axis=0))

    @property
    def free(self) -> bool:
        """Whether no rank is fixed, as plans that state a symmetry must have it."""
        return not self.fixed.any()

    @cached_property
    def orbit(self) -> np.ndarray:
        """[ranks] position in ``representatives`` of the one each rank is an image of."""
        labels, orbit = np.unique(self._labels, return_inverse=True)
        place = np.empty(len(labels), dtype=np.int64)
        place[orbit[self.representatives]] = np.arange(len(labels))
        return place[orbit]

    @cached_property
    def smallest(self) -> np.ndarray:
        """[ranks] whether each is the smallest of its orbit."""
        first = np.zeros(len(self._labels), dtype=bool)
        first[np.unique(self._labels, return_index=True)[1]] = True
        return first

    @cached_property
    def representatives(self) -> np.ndarray:
        """One rank per orbit, the smallest; every fixed rank is its own."""
        return np.flatnonzero(self.smallest)

    @cached_property
    def orbit_sizes(self) -> np.ndarray:
        """[representatives] ranks in each orbit."""
        return np.bincount(self.orbit)

    @cached_property
    def link_orbit(self) -> np.ndarray:
        """[links] label of each link's orbit."""
        return orbit_labels(self.links)

    @cached_property
    def elements(self) -> np.ndarray:
        """[order, ranks] image of every rank under each element: ranks x order numbers, so only for smaller groups."""
        return np.ascontiguousarray(self.carried(np.arange(self.generators.shape[1])).T)

    def images(self, rank: int) -> np.ndarray:
        """[order] where each element takes one rank."""
        known = self._images.get(rank)
        if known is None:
            known = self.carried(np.array([rank]))[0]
            if len(self._images) < KEPT:
                self._images[rank] = known
        return known

    def may_grow_by(self, image: np.ndarray) -> bool:
        """False where a permutation and this group, which acts freely, surely make none that does.

        A permutation that takes one rank where an element takes it must be that element; a few ranks are looked at.
        """
        first = int(np.argmin(self.fixed))
        same = np.flatnonzero(self.images(first) == image[first])
        few = np.linspace(0, len(image) - 1, FEW).astype(np.int64).tolist()
        return not len(same) or all(self.images(rank)[same[0]] == image[rank] for rank in few)

    def carried(self, ranks: np.ndarray) -> np.ndarray:
        """[ranks given, order] where each element takes each of some ranks."""
        images = np.empty((len(ranks), self.order), dtype=np.int64)
        images[:, 0] = ranks
        for now in self._levels:
            images[:, now] = self.generators[self.via[now], images[:, self.before[now]]]
        return images

    def made_from(self) -> Iterator[tuple[int, int, int]]:
        """(rank, rank it is the image of, generator) for every rank that is no representative, sources first."""
        generators = self.generators.tolist()
        ranks = self.representatives.tolist()
        seen = self.smallest.tolist()
        for source in ranks:  # which grows
            for which, generator in enumerate(generators):
                rank = generator[source]
                if not seen[rank]:
                    seen[rank] = True
                    ranks.append(rank)
                    yield rank, source, which

    @cached_property
    def _labels(self) -> np.ndarray:
        return orbit_labels(self.generators)

    @cached_property
    def _levels(self) -> list[slice]:
        """Elements made from those of earlier slices, in order."""
        levels, low, before = [], 1, self.before.tolist()
        while low < len(before):
            high = low
            while high < len(before) and before[high] < low:
                high += 1
            levels.append(slice(low, high))
            low = high
        return levels


def _reached_from(start: int, generators: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The orbit of one rank, numbered breadth-first: (from which, by which generator, [generators, orbit] images)."""
    number = {start: 0}
    ranks, before, via = [start], [0], [0]
    step: list[list[int]] = [[] for _ in generators]
    for position, rank in enumerate(ranks):  # which grows
        for which, image in enumerate(generators):
            there = number.setdefault(image[rank], len(ranks))
            if there == len(ranks):
                ranks.append(image[rank])
                before.append(position)
                via.append(which)
            step[which].append(there)
    return np.array(before), np.array(via), np.array(step)


def orbit_labels(images: np.ndarray) -> np.ndarray:
    """[items] label of each item's orbit under permutations, [permutations, items]; in the order of smallest items."""
    count = images.shape[1]
    return joined(count, np.tile(np.arange(count), len(images)), images.ravel())


def joined(count: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[count] label of the part that each item is in when pairs of them are joined; in the order of smallest items.

    Source: Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm", 1982.
    """
    label = np.arange(count)
    while True:
        a, b = label[first], label[second]
        apart = a != b
        if not apart.any():
            return np.unique(label, return_inverse=True)[1].reshape(count)
        np.minimum.at(label, np.maximum(a, b)[apart], np.minimum(a, b)[apart])
        while (label[label] != label).any():
            label = label[label]
