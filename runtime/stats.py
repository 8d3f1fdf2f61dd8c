"""What ran: per operation and per edge, in Python, for Prometheus, and as text like nccl-tests prints."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.buffers import Memory
from runtime.choice import Verdict
from synth.plan.program import Program
from synth.units import format_bytes, format_rate, format_seconds

TALLIES_KEPT = 64
"""Programs whose calls are only counted; what they sent to each peer is added up when somebody asks."""
PENDING_KEPT = 256
"""Timed calls on a GPU that may be under way at once; older ones are given up."""


@dataclass(slots=True)
class OperationStats:
    """Totals of one operation under one schedule.

    Attributes:
        calls: how often it ran.
        bytes: input bytes of this rank.
        rounds: exchanges.
        timed_calls: calls that were timed: all on host memory, a sample on a GPU.
        timed_bytes: input bytes of those.
        seconds: of those, from the first piece of work to the end of the last; on a GPU by its own clock.
        wait_seconds: of these, inside exchanges.
    """

    calls: int = 0
    bytes: int = 0
    rounds: int = 0
    timed_calls: int = 0
    timed_bytes: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0


@dataclass(slots=True)
class EdgeStats:
    """Totals of what this rank sent to one peer.

    Attributes:
        messages: how many.
        bytes: how many, relayed ones included.
        timed_bytes: bytes of calls that were timed.
        seconds: duration of the rounds those travelled in.
    """

    messages: int = 0
    bytes: int = 0
    timed_bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Achieved rate; a lower bound, since a round lasts as long as its slowest message."""
        return self.timed_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True, eq=False)
class Tally:
    """Calls of one program that are not yet added up by peer: counting one costs an addition.

    Attributes:
        entry: totals of its operation.
        bytes: input bytes of a call.
        program: None for the library's own collective.
        itemsize: bytes of an element.
        calls: how many.
        timed: of these, timed.
        seconds: of the timed ones, by round.
        kept: whether it is still counted on.
    """

    entry: OperationStats
    bytes: int
    program: Program | None
    itemsize: int
    calls: int = 0
    timed: int = 0
    seconds: list[float] = field(default_factory=list)
    kept: bool = True

    def count(self) -> None:
        """One more call."""
        self.calls += 1
        entry = self.entry
        entry.calls += 1
        entry.bytes += self.bytes
        if self.program is not None:
            entry.rounds += len(self.program.rounds)


class Stats:
    """Everything that one group counted since it was attached.

    Args:
        rank: whose counts they are.
        clock: the group's memory, which compares marks.

    Attributes:
        operations: by (operation, schedule); a schedule is ``plan <digest>``, ``direct`` or ``native``.
        reasons: why each operation runs the schedule it does.
        trials: what was timed before a plan was used, in order.
        connected: seconds of each step of the warm-up, by peer.
        fallbacks: calls that ran native or direct although a plan was in force.
        attach_seconds: from the call of ``attach`` to its return.
    """

    def __init__(self, rank: int, clock: Memory) -> None:
        self.rank = rank
        self.operations: dict[tuple[str, str], OperationStats] = defaultdict(OperationStats)
        self.reasons: dict[str, str] = {}
        self.trials: list[Verdict] = []
        self.connected: dict[int, float] = {}
        self.fallbacks = 0
        self.attach_seconds = 0.0
        self._clock = clock
        self._edges: dict[int, EdgeStats] = defaultdict(EdgeStats)
        self._tallies: OrderedDict[tuple[Any, ...], Tally] = OrderedDict()
        self._pending: deque[tuple[Tally, list[Any]]] = deque()

    @property
    def edges(self) -> dict[int, EdgeStats]:
        """Totals by peer."""
        self.settle()
        for tally in self._tallies.values():
            self._add_up(tally)
        return self._edges

    def tally(self, operation: str, schedule: str, bytes: int, program: Program | None, itemsize: int) -> Tally:
        """Where the calls of a program are counted."""
        key = (operation, schedule, bytes, id(program), itemsize)
        found = self._tallies.get(key)
        if found is None:
            rounds = 0 if program is None else len(program.rounds)
            found = Tally(self.operations[operation, schedule], bytes, program, itemsize, seconds=[0.0] * rounds)
            self._tallies[key] = found
            if len(self._tallies) > TALLIES_KEPT:
                oldest = self._tallies.popitem(last=False)[1]
                oldest.kept = False
                self._add_up(oldest)
        return found

    def again(self, tally: Tally) -> None:
        """One more call of a program that a recording holds, however long ago it was counted first."""
        tally.count()
        if not tally.kept:
            self._add_up(tally)

    def calls(self, operation: str, schedule: str) -> int:
        """How often an operation ran under a schedule."""
        entry = self.operations.get((operation, schedule))
        return 0 if entry is None else entry.calls

    def timed(self, tally: Tally, marks: list[Any]) -> None:
        """Take the marks of a call: begin, begin and end of every round, end; on a GPU they are compared later."""
        self._pending.append((tally, marks))
        if len(self._pending) > PENDING_KEPT:
            self._compare(*self._pending.popleft())
        elif type(marks[0]) is float:
            self._compare(*self._pending.pop())

    def settle(self) -> None:
        """Compare the marks of all calls that the GPU has finished; never waits."""
        self._pending = deque(call for call in self._pending if not self._compare(*call))

    def _compare(self, tally: Tally, marks: list[Any]) -> bool:
        elapsed = self._clock.elapsed
        whole = elapsed(marks[0], marks[-1])
        if whole is None:
            return False
        entry, waited = tally.entry, 0.0
        for position in range(len(tally.seconds)):
            took = elapsed(marks[1 + 2 * position], marks[2 + 2 * position]) or 0.0
            tally.seconds[position] += took
            waited += took
        tally.timed += 1
        entry.timed_calls += 1
        entry.timed_bytes += tally.bytes
        entry.seconds += whole
        entry.wait_seconds += waited
        self._clock.recycle(marks)
        if not tally.kept:
            self._add_up(tally)
        return True

    def _add_up(self, tally: Tally) -> None:
        if tally.program is not None and (tally.calls or tally.timed):
            for round, seconds in zip(tally.program.rounds, tally.seconds, strict=True):
                for message in round.sends:
                    edge, bytes = self._edges[message.peer], message.length * tally.itemsize
                    edge.messages += tally.calls
                    edge.bytes += bytes * tally.calls
                    edge.timed_bytes += bytes * tally.timed
                    edge.seconds += seconds
        tally.calls = tally.timed = 0
        tally.seconds = [0.0] * len(tally.seconds)

    def text(self) -> str:
        """A table for people."""
        self.settle()
        lines = [f"{'operation':<15} {'schedule':<18} {'calls':>8} {'bytes':>12} {'time/call':>12} {'algbw':>14}"]
        for (operation, schedule), entry in sorted(self.operations.items()):
            per_call = entry.seconds / entry.timed_calls if entry.timed_calls else 0.0
            rate = entry.timed_bytes / entry.seconds if entry.seconds > 0 else 0.0
            lines.append(
                f"{operation:<15} {schedule:<18} {entry.calls:>8} {format_bytes(entry.bytes):>12} "
                f"{format_seconds(per_call):>12} {format_rate(rate):>14}"
            )
        lines += [
            f"edge {self.rank} -> {peer}: {edge.messages} messages, {format_bytes(edge.bytes)}, "
            f"{format_rate(edge.bytes_per_s)}"
            for peer, edge in sorted(self.edges.items())
        ]
        lines += [f"{operation}: {reason}" for operation, reason in sorted(self.reasons.items())]
        lines += [f"{trial.operation}: {trial.reason}" for trial in self.trials]
        return "\n".join(lines)

    def prometheus(self) -> str:
        """The text exposition format, ``synth_`` prefix, base units."""
        self.settle()
        families: list[tuple[str, str, list[tuple[str, float]]]] = []
        by_call = [
            (f'operation="{operation}",schedule="{schedule}",rank="{self.rank}"', entry)
            for (operation, schedule), entry in sorted(self.operations.items())
        ]
        for name, attribute, says in (
            ("calls", "calls", "Collective calls."),
            ("bytes", "bytes", "Input bytes of this rank."),
            ("timed_calls", "timed_calls", "Calls that were timed."),
            ("timed_bytes", "timed_bytes", "Input bytes of calls that were timed."),
            ("seconds", "seconds", "Time in timed calls."),
            ("wait_seconds", "wait_seconds", "Time of timed calls in exchanges."),
            ("rounds", "rounds", "Rounds issued."),
        ):
            rows = [(labels, float(getattr(entry, attribute))) for labels, entry in by_call]
            families.append((f"synth_collective_{name}_total", says, rows))
        by_peer = [(f'src="{self.rank}",dst="{peer}"', edge) for peer, edge in sorted(self.edges.items())]
        for name, says in (
            ("bytes", "Bytes sent on an edge."),
            ("timed_bytes", "Bytes of timed calls sent on an edge."),
            ("seconds", "Time of the rounds of timed calls an edge was used in."),
        ):
            rows = [(labels, float(getattr(edge, name))) for labels, edge in by_peer]
            families.append((f"synth_edge_{name}_total", says, rows))
        families.append(
            ("synth_fallbacks_total", "Calls that did not run the plan.", [(f'rank="{self.rank}"', self.fallbacks)])
        )
        counters = "".join(_family(name, says, "counter", rows) for name, says, rows in families)
        latest = {
            f'operation="{trial.operation}",bytes="{trial.bytes}",schedule="{name}",rank="{self.rank}"': value
            for trial in self.trials
            for name, value in trial.seconds.items()
        }
        if not latest:
            return counters
        return counters + _family("synth_trial_seconds", "Time in the last trial.", "gauge", sorted(latest.items()))


def _family(name: str, says: str, kind: str, rows: Sequence[tuple[str, float]]) -> str:
    samples = "".join(f"{name}{{{labels}}} {value:.17g}\n" for labels, value in rows)
    return f"# HELP {name} {says}\n# TYPE {name} {kind}\n{samples}"
