"""Per-rank slices: cut once, some ranks at a time, kept in the database, and served as ready bytes from memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from server.store import Database, plans
from server.store.documents import unpack
from synth.documents import Json
from synth.errors import NotFoundError

KEPT_BYTES = 256 * 2**20
"""Slices kept in memory, gzipped."""
TOGETHER = 32
"""Slices of so many neighbouring ranks are cut at once: the first of a thousand ranks must not wait for all."""


class Slices:
    """The slices of all plans.

    Args:
        database: where they are kept.
        cut: cuts [(digest, text)] of some ranks out of a plan's text: (text, first rank, ranks); may take a while.
    """

    def __init__(self, database: Database, cut: Callable[[str, int, int], Json]) -> None:
        self._database = database
        self._cut = cut
        self._lock = threading.Lock()
        self._cutting: dict[str, threading.Lock] = {}
        self._kept: OrderedDict[tuple[str, int], tuple[str, bytes]] = OrderedDict()
        self._size = 0

    def get(self, plan: str, rank: int) -> tuple[str, bytes]:
        """(digest, gzipped document) of one rank's slice.

        Raises:
            NotFoundError: nobody knows the plan, or it has no such rank.
        """
        kept = self.kept(plan, rank)
        if kept is not None:
            return kept
        with self._lock:
            lock = self._cutting.setdefault(plan, threading.Lock())
        with lock:  # of a thousand workers that ask at once, one cuts the slices
            found = self._stored(plan, rank) or self._make(plan, rank)
        self._keep((plan, rank), found)
        return found

    def kept(self, plan: str, rank: int) -> tuple[str, bytes] | None:
        """The slice if it is in memory; takes no time."""
        with self._lock:
            found = self._kept.get((plan, rank))
            if found is not None:
                self._kept.move_to_end((plan, rank))
            return found

    def _stored(self, plan: str, rank: int) -> tuple[str, bytes] | None:
        with self._database.read() as connection:
            return plans.get_slice(connection, plan, rank)

    def _make(self, plan: str, rank: int) -> tuple[str, bytes]:
        with self._database.read() as connection:
            ranks, document = plans.ranks_of(connection, plan), plans.get(connection, plan)
        if ranks is None or document is None:
            self._cutting.pop(plan, None)
            raise NotFoundError(f"plan {plan[:64]}: is not stored here", subject="digest")
        if not 0 <= rank < ranks:
            raise NotFoundError(f"rank {rank}: the plan has ranks 0 to {ranks - 1}", subject="rank")
        first = rank - rank % TOGETHER
        texts = self._cut(unpack(document), first, min(TOGETHER, ranks - first))
        with self._database.write() as connection:
            plans.add_slices(connection, plan, texts, first=first)
        found = self._stored(plan, rank)
        assert found is not None
        return found

    def _keep(self, key: tuple[str, int], found: tuple[str, bytes]) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = found
                self._size += len(found[1])
            while self._size > KEPT_BYTES and len(self._kept) > 1:
                _, (_, document) = self._kept.popitem(last=False)
                self._size -= len(document)
