"""What ``synth bound`` and ``synth solve`` both ask: a topology, its ranks and a demand."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from synth.cli.inputs import progress, read_demand, read_ranks, read_topology
from synth.collective import Collective, Demand
from synth.errors import InputError
from synth.plan.sizes import input_bytes
from synth.topology import Topology
from synth.units import parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A topology, ranks on it (helpers last) and what they are to exchange."""

    topology: Topology
    ranks: tuple[str, ...]
    demand: Demand


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the request."""
    parser.add_argument("topology", metavar="TOPO", help="file or catalog name")
    parser.add_argument("--collective", metavar="C", help=", ".join(member.value for member in Collective))
    parser.add_argument("--bytes", metavar="N", help="size, such as 64MB or 1GiB; default 1 GB, or what --demand says")
    parser.add_argument("--demand", metavar="FILE", help='bytes per pair, {"bytes": [[N x N]]}, for alltoall')
    parser.add_argument("--ranks", metavar="LIST", help="GPUs by id or position, such as 0-3,8; default: all")
    parser.add_argument(
        "--helpers", choices=("none", "idle"), default="none", help="whether the other GPUs relay (%(default)s)"
    )
    parser.add_argument("--root", type=int, metavar="RANK", help="for broadcast and reduce; default 0")
    parser.add_argument("--pairs", metavar="A:B,..", help="for sendrecv; default: a ring")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same answer (%(default)s)")


def check_limits(args: argparse.Namespace) -> None:
    """Refuse limits that make no sense.

    Raises:
        InputError: naming the one.
    """
    if not 0 < args.time_limit < 1e9:
        raise InputError(f"--time-limit: is {args.time_limit}; must be above 0 seconds", subject="--time-limit")
    if not 0 <= args.seed < 2**31:
        raise InputError(f"--seed: is {args.seed}; must be from 0 to 2^31 - 1", subject="--seed")


def read(args: argparse.Namespace) -> Asked:
    """The request that the arguments describe.

    Raises:
        InputError: they do not fit together.
    """
    check_limits(args)
    if args.collective is None:
        known = ", ".join(member.value for member in Collective)
        raise InputError(f"--collective: is missing; must be one of {known}", subject="--collective")
    topology = read_topology(args.topology)
    ranks = read_ranks(args.ranks, topology)
    size = 1_000_000_000 if args.bytes is None else parse_size(args.bytes, subject="--bytes")
    demand = read_demand(args.collective, ranks, bytes=size, demand_file=args.demand, root=args.root, pairs=args.pairs)
    if demand.matrix is not None:
        demand = Demand(
            collective=demand.collective, ranks=demand.ranks, bytes=input_bytes(demand.matrix), matrix=demand.matrix
        )
    if args.helpers == "idle":
        ranks += tuple(device for device in topology.gpus if device not in set(ranks))
    return Asked(topology=topology, ranks=ranks, demand=demand)


class Interrupt:
    """Whether Ctrl-C was pressed; a second press interrupts at once."""

    def __init__(self) -> None:
        self.pressed = False

    def __call__(self) -> bool:
        """As :data:`solver.backend.Cancel`."""
        return self.pressed


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a polite request to stop with the best found so far."""
    interrupt = Interrupt()

    def press(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.pressed:
            raise KeyboardInterrupt
        interrupt.pressed = True
        progress("stopping with the best found so far; press Ctrl-C again to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
