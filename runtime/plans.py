"""Finding the plan for an operation and agreeing on it: equal on all ranks, or used by none."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from runtime import slices
from runtime.communicators import Communicator
from runtime.schedules import Operation
from synth import plan as plans
from synth.client import Environment, Found, PlanRequest, find_plan
from synth.collective import Collective
from synth.errors import SynthError, UnmatchedGroup
from synth.plan import Plan
from synth.plan.sizes import input_bytes
from synth.topology import Topology
from synth.verifier import verify

FALLBACK = "SYNTH_FALLBACK"
"""``native`` (default): ranks that disagree run the library's own collective; ``error``: they raise UnmatchedGroup."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where plans are looked for.

    Attributes:
        environment: of the client; None looks nowhere.
        topology: the machine; without it only plan files are used.
        ranks: device of each rank; empty for the topology's GPUs in order.
        bytes: size that plans are asked for.
        demand: [ranks, ranks] bytes per pair that the alltoall's plan is asked for; None for an even one.
        trial: whether a plan has to win a timed trial before it is used.
        telemetry: whether the server is told what the edges achieved.
        statistics: whether calls are counted and timed.
    """

    environment: Environment | None
    topology: Topology | None = None
    ranks: tuple[str, ...] = ()
    bytes: int = 64 * 2**20
    demand: np.ndarray | None = None
    trial: bool = True
    telemetry: bool = False
    statistics: bool = True


def settle(communicator: Communicator, source: Source, operation: Operation) -> tuple[Plan | None, str]:
    """The plan all ranks use for an operation, and one line that says why; the same on every rank.

    Rank 0 looks first, so that a server that is down costs its timeout once and not once per rank. The others look
    themselves once it found something: a node's ranks share one answer through the client's cache. In large groups
    they get their slices of what rank 0 found and verified, see :mod:`runtime.slices`.

    Raises:
        UnmatchedGroup: as :func:`agree`.
        RemoteError: a rank does not answer, although it had the client's timeout on top of the deadline.
    """
    environment, deadline = source.environment, communicator.deadline
    asks = environment is not None and environment.server is not None
    communicator.deadline = deadline + (environment.timeout if asks and environment is not None else 0.0)
    try:
        found = Found(None, "none", "no plan: rank 0 found none")
        if communicator.rank == 0:
            found = find(source, operation, communicator.size)
        leader = _lead(communicator, found)
        if leader.source == "n":
            return None, found.reason
        if leader.source == "c" and environment is not None:  # the server is down: no rank has to find that out again
            source = replace(source, environment=replace(environment, server=None, cache_wanted=True))
        if leader.digest:
            return _settle_slices(communicator, source, operation, found, leader.digest)
        if communicator.rank != 0:
            found = find(source, operation, communicator.size)
        return agree(communicator, operation, found.plan, found.reason)
    finally:
        communicator.deadline = deadline


class _Leader(NamedTuple):
    """What rank 0 found: where (f, s, c or n), and the digest where the others shall get their slices of it."""

    source: str
    digest: str


def _lead(communicator: Communicator, found: Found) -> _Leader:
    sliced = found.plan is not None and found.source in ("server", "cache") and slices.may_slice(found.plan)
    digest = found.plan.digest if sliced and found.plan is not None else "-" * 64
    said = communicator.gather((found.source[:1] + digest).encode())[0].decode()
    return _Leader(said[0], said[1:].strip("-"))


def _settle_slices(
    communicator: Communicator, source: Source, operation: Operation, found: Found, digest: str
) -> tuple[Plan | None, str]:
    """Every rank's slice, agreed on: the plan that rank 0 verified is all that the slices together hold."""
    rank, size, environment = communicator.rank, communicator.size, source.environment
    assert environment is not None  # rank 0 looked there, and all ranks have the same
    reason = found.reason if rank == 0 else f"plan {digest[:12]}, slice of rank {rank}"
    part: slices.Slice | None
    if found.plan is not None:
        part, truth = slices.cut(found.plan, rank), slices.sums_of(found.plan).row()
    else:
        part, why = slices.fetch(environment, digest, rank, size)
        reason, truth = reason if part is not None else f"no plan: {why}", bytes(slices.ROW_BYTES)
    own = bytes(slices.ROW_BYTES) if part is None else slices.sums_of(part).row()
    sends = np.zeros(size, dtype=bool)
    if part is not None:
        sends[part.transfers.dst[part.transfers.src == rank]] = True
    plan, reason = agree(communicator, operation, part, reason)
    rows = communicator.gather(own + truth + _strictness() + np.packbits(sends).tobytes())
    if plan is None or part is None:
        return None, reason
    kept = slices.ROW_BYTES
    wrong = slices.mismatch(slices.Sums.read(rows[0][kept : 2 * kept]), [row[:kept] for row in rows])
    if wrong is not None:
        who = "the slices of the ranks together are" if wrong < 0 else f"rank {wrong} has a slice"
        message = f"{operation.name}: {who} not plan {digest[:12]}"
        return _without(message, any(row[2 * kept : 2 * kept + 1] == b"!" for row in rows))
    edges = np.stack([np.unpackbits(np.frombuffer(row[2 * kept + 1 :], np.uint8), count=size) for row in rows])
    nodes = nodes_of(source, size)
    if nodes.index(nodes[rank]) == rank != 0 and environment.server is not None:
        slices.keep_whole(environment, _request(source, operation, size), digest)
    return part.with_(edges=edges.astype(bool)), reason


def nodes_of(source: Source, size: int) -> tuple[int, ...]:
    """The node of each rank, numbered as they first appear; all 0 where no topology says."""
    if source.topology is None:
        return (0,) * size
    node = {device.id: device.node for device in source.topology.devices}
    named = [node.get(device) for device in (source.ranks or source.topology.gpus)[:size]]
    if len(named) < size:
        return (0,) * size
    numbers = {name: number for number, name in enumerate(dict.fromkeys(named))}
    return tuple(numbers[name] for name in named)


def find(source: Source, operation: Operation, size: int) -> Found:
    """This rank's plan, where it came from, and one line that says so or why there is none. Never raises SynthError."""
    if size < 2:
        return _none("one rank needs none")
    try:
        found = _look(source, operation, size)
        if found.plan is None:
            return found
        if len(found.plan.ranks) != size:
            return _none(f"{found.reason} is for {len(found.plan.ranks)} ranks with its helpers, not {size}")
        broken = verify(found.plan, source.topology)
        return _none(f"{found.reason} is not valid: {broken[0].message}") if broken else found
    except SynthError as error:
        return _none(error.message)


def _none(why: str) -> Found:
    return Found(None, "none", f"no plan: {why}")


def _look(source: Source, operation: Operation, size: int) -> Found:
    environment = source.environment
    if environment is None:
        return _none("none was asked for")
    if source.topology is None:
        if environment.server is not None and not environment.plan_files:
            return _none("SYNTH_TOPOLOGY is not set, so the server cannot be asked")
        return _from_files(environment.plan_files, operation, size)
    return find_plan(_request(source, operation, size), environment)


def _request(source: Source, operation: Operation, size: int) -> PlanRequest:
    """What the server is asked; there is a topology."""
    assert source.topology is not None
    demand = source.demand if operation.collective is Collective.ALLTOALL else None
    return PlanRequest(
        topology=source.topology,
        collective=operation.collective.value,
        bytes=source.bytes if demand is None else input_bytes(demand),
        demand=demand,
        ranks=source.ranks or source.topology.gpus[:size],
        root=operation.root,
        pairs=operation.pairs,
    )


def _from_files(paths: Sequence[str], operation: Operation, size: int) -> Found:
    """A plan file for this operation, where no topology is known to check it against."""
    remark = "neither SYNTH_PLAN_FILE nor SYNTH_SERVER is set" if not paths else "no plan file fits"
    for path in paths:
        try:
            found = plans.load(path)
        except SynthError as error:
            remark = error.message
            continue
        if (found.collective, found.root, found.members) == (operation.collective, operation.root, size):
            return Found(found, "file", f"plan {found.digest[:12]} from file {path}")
        if found.collective is operation.collective:
            remark = f"{path} is for {found.members} ranks, root {found.root}"
    return _none(remark)


def agree(communicator: Communicator, operation: Operation, plan: Plan | None, reason: str) -> tuple[Plan | None, str]:
    """Compare digests on all ranks: the plan if all have the same, else none for anybody.

    Raises:
        UnmatchedGroup: the ranks differ and ``SYNTH_FALLBACK=error``; on every rank.
        RemoteError: a rank does not answer.
    """
    digests = communicator.gather((plan.digest if plan else "-" * 64).encode() + _strictness())
    mine = [digest[:64] for digest in digests]
    if len(set(mine)) == 1:
        return plan, reason
    first = next(rank for rank, digest in enumerate(mine) if digest != mine[0])
    held = [digest.decode()[:12] if digest[:1] != b"-" else "none" for digest in (mine[0], mine[first])]
    message = f"{operation.name}: rank 0 has plan {held[0]}, rank {first} has {held[1]}"
    return _without(message, any(digest[64:] == b"!" for digest in digests))


def _strictness() -> bytes:
    """Travels along, as every rank must see the same verdict."""
    return b"!" if os.environ.get(FALLBACK, "native") == "error" else b"."


def _without(message: str, strict: bool) -> tuple[None, str]:
    """What ranks do that hold different plans."""
    if strict:
        raise UnmatchedGroup(f"{message}; give all ranks the same plan, or unset {FALLBACK}")
    return None, f"no plan: {message}, so nobody uses one"


def announce(rank: int, size: int, operation: Operation, reason: str) -> None:
    """Say which plan is in force, or why none is."""
    rest = "" if reason.startswith("plan") else "; the native or direct exchange is used"
    say(rank, size, operation, reason + rest)


def say(rank: int, size: int, operation: Operation, what: str) -> None:
    """One line on rank 0's stderr, unless ``SYNTH_QUIET`` is set."""
    if rank == 0 and not os.environ.get("SYNTH_QUIET"):
        print(f"synth: {operation.name} among {size} ranks: {what}", file=sys.stderr, flush=True)
