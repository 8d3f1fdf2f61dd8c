"""What ran: per operation and per edge, in Python, for Prometheus, and as text like nccl-tests prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.choice import Verdict
from synth.plan.program import Program
from synth.units import format_bytes, format_rate, format_seconds


@dataclass(slots=True)
class OperationStats:
    """Totals of one operation under one schedule.

    Attributes:
        calls: how often it ran.
        bytes: input bytes of this rank.
        seconds: from issue to completion; on a GPU from issue to the end of issuing unless timing is on.
        wait_seconds: of these, inside exchanges.
        rounds: exchanges.
    """

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    rounds: int = 0


@dataclass(slots=True)
class EdgeStats:
    """Totals of what this rank sent to one peer.

    Attributes:
        messages: how many.
        bytes: how many, relayed ones included.
        seconds: duration of the rounds they travelled in.
    """

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Achieved rate; a lower bound, since a round lasts as long as its slowest message."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Stats:
    """Everything that one group counted since it was attached.

    Attributes:
        rank: whose counts they are.
        operations: by (operation, schedule); a schedule is ``plan <digest>``, ``direct`` or ``native``.
        edges: by peer.
        reasons: why each operation runs the schedule it does.
        trials: what was timed before a plan was used, in order.
        fallbacks: calls that ran native or direct although a plan was in force.
        attach_seconds: from the call of ``attach`` to its return.
    """

    rank: int
    operations: dict[tuple[str, str], OperationStats] = field(default_factory=lambda: defaultdict(OperationStats))
    edges: dict[int, EdgeStats] = field(default_factory=lambda: defaultdict(EdgeStats))
    reasons: dict[str, str] = field(default_factory=dict)
    trials: list[Verdict] = field(default_factory=list)
    fallbacks: int = 0
    attach_seconds: float = 0.0

    def record(self, operation: str, schedule: str, *, bytes: int, seconds: float, wait: float, rounds: int) -> None:
        """Count one call."""
        entry = self.operations[operation, schedule]
        entry.calls += 1
        entry.bytes += bytes
        entry.seconds += seconds
        entry.wait_seconds += wait
        entry.rounds += rounds

    def record_edges(self, program: Program, itemsize: int, seconds: Mapping[int, float]) -> None:
        """Count a program's messages; ``seconds`` by round."""
        for round in program.rounds:
            for message in round.sends:
                edge = self.edges[message.peer]
                edge.messages += 1
                edge.bytes += message.length * itemsize
                edge.seconds += seconds.get(round.number, 0.0)

    def text(self) -> str:
        """A table for people."""
        lines = [f"{'operation':<15} {'schedule':<18} {'calls':>8} {'bytes':>12} {'time/call':>12} {'algbw':>14}"]
        for (operation, schedule), entry in sorted(self.operations.items()):
            per_call = entry.seconds / entry.calls
            rate = entry.bytes / entry.seconds if entry.seconds > 0 else 0.0
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
        families: list[tuple[str, str, list[tuple[str, float]]]] = []
        by_call = [
            (f'operation="{operation}",schedule="{schedule}",rank="{self.rank}"', entry)
            for (operation, schedule), entry in sorted(self.operations.items())
        ]
        for name, attribute, says in (
            ("calls", "calls", "Collective calls."),
            ("bytes", "bytes", "Input bytes of this rank."),
            ("seconds", "seconds", "Time in collectives."),
            ("wait_seconds", "wait_seconds", "Time in exchanges."),
            ("rounds", "rounds", "Rounds issued."),
        ):
            rows = [(labels, float(getattr(entry, attribute))) for labels, entry in by_call]
            families.append((f"synth_collective_{name}_total", says, rows))
        by_peer = [(f'src="{self.rank}",dst="{peer}"', edge) for peer, edge in sorted(self.edges.items())]
        for name, says in (("bytes", "Bytes sent on an edge."), ("seconds", "Time of the rounds an edge was used in.")):
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
