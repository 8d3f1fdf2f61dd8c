"""Large groups: rank 0 verifies the whole plan, every other rank gets its own slice of it only.

That the slices together are the plan is checked by sums. Each transfer of a plan stands in two slices, its sender's and
its receiver's. Every rank adds up a hash of each transfer it sends, and of each it receives; a hash covers which part
of which block travels, from whom to whom, in which round and in which place of the message. Over all ranks both sums
must be the sum over the plan that rank 0 verified. A rank's slice may hold nothing but its own transfers, so equal sums
mean that every rank holds exactly those of the plan. The hashes find mistakes of servers, caches and versions, not a
forger: who serves plans is trusted as far as its token and certificate are.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import numpy as np

from synth import documents
from synth import plan as plans
from synth.client import Cache, Client, Environment, PlanRequest
from synth.client.cache import Answer
from synth.collective import Collective
from synth.documents import Json
from synth.errors import InvalidPlan, SynthError
from synth.plan import Plan, load_slice, slice_plan
from synth.plan.layout import unserved
from synth.plan.lowering import share_bounds
from synth.plan.symmetry import expand

WHOLE_RANKS = 64
"""Up to so many ranks everybody gets and verifies the whole plan, which prices per call need."""
SPREAD_SECONDS = 30.0
"""Within so long the nodes' caches fetch the whole plan, for a later start without a server."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slice(Plan):
    """One rank's part of a plan.

    Attributes:
        rank: whose.
        whole: digest of the whole plan.
        edges: [ranks, ranks] whether anything is sent from rank to rank; of the whole plan, once the ranks agreed.
    """

    rank: int
    whole: str
    edges: np.ndarray | None = None

    @property
    def digest(self) -> str:
        """Digest of the whole plan, by which it is known."""
        return self.whole


def slice_of(document: Json) -> Slice:
    """A slice document as a value.

    Raises:
        DocumentError: it breaks the format, or its digest does not match its content.
        InvalidPlan: it holds transfers of other ranks.
    """
    part, rank, whole = load_slice(document)
    if ((part.transfers.src != rank) & (part.transfers.dst != rank)).any():
        raise InvalidPlan(f"the slice of rank {rank} of plan {whole[:12]} holds transfers of other ranks")
    return Slice(**{field.name: getattr(part, field.name) for field in fields(Plan)}, rank=rank, whole=whole)


def cut(plan: Plan, rank: int) -> Slice:
    """A rank's slice of a plan that is here as a whole."""
    return slice_of(slice_plan(plan, rank))


def may_slice(plan: Plan) -> bool:
    """Whether a rank can tell from its own slice what the plan can be used for: it serves every pair, or all alike."""
    if len(plan.ranks) <= WHOLE_RANKS:
        return False
    if plan.collective is not Collective.ALLTOALL:
        return True
    return unserved(expand(plan), np.ones((plan.members, plan.members))) is None


def serves(plan: Plan, counts: np.ndarray) -> bool:
    """Whether the plan has chunks for every pair with data; a plan that is used in slices has."""
    return isinstance(plan, Slice) or unserved(plan, counts) is None


def edges_of(plan: Plan) -> set[tuple[int, int]]:
    """(from, to) of everything that is sent directly, in the whole plan."""
    if isinstance(plan, Slice) and plan.edges is not None:
        return {(int(a), int(b)) for a, b in np.argwhere(plan.edges)}
    whole = expand(plan)
    return set(zip(whole.transfers.src.tolist(), whole.transfers.dst.tolist(), strict=True))


def fetch(environment: Environment, digest: str, rank: int, ranks: int) -> tuple[Slice | None, str]:
    """A rank's slice, from cache or server, else cut from the whole plan; and why there is none.

    The whole plan need not be verified for that: rank 0 did, and the sums hold the slice to it.

    Args:
        environment: of the client; each of the two ways gets half of its timeout.
        digest: of the whole plan.
        rank: whose slice.
        ranks: how many the plan has to have.
    """
    half = replace(environment, timeout=environment.timeout / 2)
    cache = Cache(environment.cache)
    try:
        if environment.server is not None:
            document = Client.from_environment(half).plan_slice(digest, rank)
        else:
            document = cache.slice(digest, rank)
        if document is not None:
            return _of_group(slice_of(document), ranks), ""
        why = "its slice is not cached"
    except SynthError as error:
        why = error.message
    try:
        if environment.server is not None:  # a server may take long to cut a large plan, but has it whole
            whole = Client.from_environment(half).plan(digest)
        elif (text := cache.document(digest)) is not None:
            whole = plans.from_document(documents.parse(text))
        else:
            return None, why
        return _of_group(cut(whole, rank), ranks), ""
    except SynthError:
        return None, why


def _of_group(part: Slice, ranks: int) -> Slice:
    if len(part.ranks) != ranks:
        raise InvalidPlan(f"the slice of rank {part.rank} is of a plan for {len(part.ranks)} ranks, not {ranks}")
    return part


def keep_whole(environment: Environment, request: PlanRequest, digest: str) -> None:
    """In the background, put the whole plan and what it answers into this node's cache; nothing waits for it."""

    def keep() -> None:
        time.sleep(random.uniform(0.0, SPREAD_SECONDS))
        with suppress(Exception):  # whatever goes wrong here is not the job's concern
            client = Client.from_environment(environment)
            client.plan(digest)
            answer = Answer(plan=digest, etag="", server=client.server, asked_at=0.0)
            if client.cache.answer(request.key) is None:
                client.cache.put_answer(request.key, answer)

    threading.Thread(target=keep, daemon=True, name="synth-keep").start()


# ------------------------------------------------------------ agreement


@dataclass(frozen=True, slots=True)
class Sums:
    """What ranks compare of a plan.

    Attributes:
        head: 16 bytes, equal where everything but chunks and transfers is.
        sent: 16 bytes, sum over the transfers that are sent.
        received: 16 bytes, sum over those that are received.
    """

    head: bytes
    sent: bytes
    received: bytes

    def row(self) -> bytes:
        """As it is gathered."""
        return self.head + self.sent + self.received

    @classmethod
    def read(cls, row: bytes) -> Sums:
        """From what was gathered."""
        return cls(row[:16], row[16:32], row[32:48])


ROW_BYTES = 48
"""Length of :meth:`Sums.row`."""


def sums_of(plan: Plan) -> Sums:
    """Of a slice: what its rank sends and receives. Of a whole plan: everything, which is sent and received alike."""
    whole = expand(plan)
    hashes = _hashes(whole)
    sends = receives = np.ones(len(whole.transfers), dtype=bool)
    if isinstance(plan, Slice):
        sends, receives = whole.transfers.src == plan.rank, whole.transfers.dst == plan.rank
    return Sums(_head(plan), _sum(hashes[:, sends]), _sum(hashes[:, receives]))


def mismatch(leader: Sums, rows: list[bytes]) -> int | None:
    """The first rank whose slice is of another plan, -1 where the sums tell no culprit, None where all is well.

    Args:
        leader: of the plan that rank 0 verified.
        rows: :meth:`Sums.row` of every rank's slice.
    """
    for rank, row in enumerate(rows):
        if row[:16] != leader.head:
            return rank
    columns = np.array([np.frombuffer(row[16:], dtype=np.uint64) for row in rows])
    sent, received = columns.sum(axis=0, dtype=np.uint64).reshape(2, 2)
    return None if (sent.tobytes(), received.tobytes()) == (leader.sent, leader.received) else -1


def _head(plan: Plan) -> bytes:
    said = (
        plan.collective.value, plan.root, plan.ranks, plan.helpers, plan.topology, plan.min_bytes, plan.max_bytes,
        plan.segments, plan.denominator,
    )  # fmt: skip
    return hashlib.sha256(repr(said).encode()).digest()[:16]


def _hashes(plan: Plan) -> np.ndarray:
    """[2, transfers] two hashes of each transfer."""
    transfers, chunks = plan.transfers, plan.chunks
    before, after = share_bounds(plan)
    chunk = transfers.chunk
    edge = np.stack([transfers.round, transfers.src, transfers.dst])
    begins = np.ones(len(chunk), dtype=bool)
    begins[1:] = (edge[:, 1:] != edge[:, :-1]).any(axis=0)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(chunk)), 0))
    columns = (
        chunks.origin[chunk], chunks.target[chunk], before[chunk], after[chunk], *edge, transfers.reduce,
        np.arange(len(chunk)) - first,
    )  # fmt: skip
    found = np.empty((2, len(chunk)), dtype=np.uint64)
    for lane, seed in enumerate((0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)):
        hashed = np.full(len(chunk), seed, dtype=np.uint64)
        for column in columns:
            hashed = _mix(hashed ^ column.astype(np.int64).view(np.uint64)) + np.uint64(seed)
        found[lane] = _mix(hashed)
    return found


def _mix(value: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele, Lea and Flood, 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = value ^ (value >> np.uint64(31))
    return mixed


def _sum(hashes: np.ndarray) -> bytes:
    total: bytes = hashes.sum(axis=1, dtype=np.uint64).tobytes()
    return total
