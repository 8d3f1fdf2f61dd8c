"""``synth.attach``: from the environment to a group that works.

================== ==================================================================================================
SYNTH_TRANSPORT    ``auto`` (default), ``nccl``, ``nccl-cupy``, ``mpi`` or ``gloo`` (host memory under torchrun)
SYNTH_RENDEZVOUS   where NCCL's ranks meet: a folder that all share, or ``server:JOB``; default torchrun's store
SYNTH_TOPOLOGY     topology file or catalog name: with it the server can be asked, and plans are checked against it
SYNTH_RANKS        device of each rank, as ``synth solve --ranks`` takes them; default the topology's GPUs in order
SYNTH_BYTES        size that plans are asked for, default 64MiB
SYNTH_DEMAND       file with the bytes per pair that alltoall's plan is asked for; default an even exchange
SYNTH_DEADLINE     seconds a peer may stay silent, default 30
SYNTH_FALLBACK     ``native`` (default) or ``error``: what ranks with different plans do
SYNTH_TRIAL        ``auto`` (default): at the first call of an operation at a size, plan, native and direct are timed
                   and the fastest is used from then on; ``off``: a plan that fits is used untried
SYNTH_TELEMETRY    ``on``: the server is told at close what each edge achieved; default ``off``
SYNTH_LINK_CLASSES ``on``: a communicator per link class that a plan uses; default ``off``
SYNTH_REGISTER     ``on``, on all ranks: messages go through memory registered with NCCL; default ``off``
SYNTH_STATS        ``on`` (default), or ``off``: calls are neither counted nor timed
SYNTH_QUIET        set: no line about the plan on stderr
================== ==================================================================================================

and those of :mod:`synth.client.environment`, which say where plans come from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from runtime.communicators import DEADLINE, Communicator
from runtime.communicators.open import open_communicator
from runtime.group import Group
from runtime.place import find_place
from runtime.plans import Source
from synth import documents
from synth.cli.inputs import read_ranks, read_topology
from synth.client import Environment
from synth.collective import matrix_from_document
from synth.errors import InputError, InvalidUsage
from synth.topology import Topology
from synth.units import parse_size

__all__ = ["Group", "attach"]


def attach(
    *,
    rank: int | None = None,
    size: int | None = None,
    transport: str | None = None,
    topology: Topology | str | None = None,
    ranks: Sequence[str] | None = None,
    bytes: int | None = None,
    deadline: float | None = None,
    collectives: Sequence[str] = (),
    communicator: Communicator | None = None,
) -> Group:
    """Join the group of ranks this process belongs to.

    Every argument can also come from the environment, see :mod:`runtime.attach`; arguments win.

    Args:
        rank: this process's rank; with ``size``, where no launcher says it.
        size: how many ranks there are.
        transport: ``auto``, ``nccl``, ``nccl-cupy``, ``mpi`` or ``gloo``.
        topology: the machine, as a value, a file or a catalog name.
        ranks: device id of each rank.
        bytes: size that plans are asked for.
        deadline: seconds a peer may stay silent.
        collectives: find and agree on their plans now; others at their first call.
        communicator: use this one instead of opening one.

    Raises:
        InvalidUsage: nothing says which rank this is, or the transport is not installed.
        RemoteError: a rank does not arrive before the deadline.
        UnmatchedGroup: see ``SYNTH_FALLBACK``.
    """
    began = time.perf_counter()
    seconds = deadline if deadline is not None else read_deadline()
    source = read_source(topology, ranks, bytes)
    if communicator is None:
        place = find_place(rank, size)
        if place is None:
            raise InvalidUsage(
                "nothing says which rank this is; start the script with torchrun, mpiexec or srun, "
                "or call synth.attach(rank=..., size=...)"
            )
        communicator = open_communicator(transport or os.environ.get("SYNTH_TRANSPORT", "auto"), place, seconds)
    group = Group(communicator, source)
    try:
        for collective in collectives:
            group.prepare(collective)
    except BaseException:
        group.close()
        raise
    group.stats().attach_seconds = time.perf_counter() - began
    return group


def read_source(
    topology: Topology | str | None = None, ranks: Sequence[str] | None = None, bytes: int | None = None
) -> Source:
    """Where plans come from; a variable that cannot be used is an error here, since every rank has the same ones."""
    named = topology if topology is not None else os.environ.get("SYNTH_TOPOLOGY") or None
    machine = read_topology(named) if isinstance(named, str) else named
    members = tuple(ranks) if ranks is not None else ()
    if not members and machine is not None and os.environ.get("SYNTH_RANKS"):
        members = read_ranks(os.environ["SYNTH_RANKS"], machine)
    size = bytes if bytes is not None else parse_size(os.environ.get("SYNTH_BYTES", "64MiB"), subject="SYNTH_BYTES")
    demand = None
    if os.environ.get("SYNTH_DEMAND"):
        demand = matrix_from_document(documents.read(os.environ["SYNTH_DEMAND"]), subject=os.environ["SYNTH_DEMAND"])
    return Source(
        Environment.read(),
        machine,
        members,
        size,
        demand,
        trial=_switch("SYNTH_TRIAL", "auto", "off") == "auto",
        telemetry=_switch("SYNTH_TELEMETRY", "off", "on") == "on",
        statistics=_switch("SYNTH_STATS", "on", "off") == "on",
    )


def _switch(name: str, default: str, other: str) -> str:
    value = os.environ.get(name) or default
    if value not in (default, other):
        raise InputError(f"{name}: {documents.shorten(value)} is not known; must be {default} or {other}", subject=name)
    return value


def read_deadline() -> float:
    """``SYNTH_DEADLINE``, or the default."""
    text = os.environ.get("SYNTH_DEADLINE", str(DEADLINE))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise InputError(f"SYNTH_DEADLINE: {text!r} is no number of seconds above 0", subject="SYNTH_DEADLINE")
    return value
