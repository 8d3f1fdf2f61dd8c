"""One machine as several sources see it, fact by fact: what agrees, what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from probe import build, live
from probe.facts import Facts
from probe.sources import nccl_dump, nvml, sysfs
from synth.errors import CaptureError
from synth.topology import Routes


@dataclass(frozen=True, slots=True)
class Row:
    """One fact.

    Attributes:
        fact: what it is.
        values: source -> what it says; a source that does not know is left out.
    """

    fact: str
    values: dict[str, str]

    @property
    def agrees(self) -> bool:
        """Whether all that know it say the same."""
        return len(set(self.values.values())) <= 1


def compare(reports: Mapping[str, Facts]) -> list[Row]:
    """The facts that several sources can know, in a fixed order."""
    rows: list[Row] = []

    def row(fact: str, ask: Callable[[Facts], object]) -> None:
        said = {source: ask(facts) for source, facts in reports.items()}
        rows.append(Row(fact, {source: str(value) for source, value in said.items() if value not in (None, "", ())}))

    row("GPUs", lambda facts: len(facts.gpus))
    most = max((len(facts.gpus) for facts in reports.values()), default=0)
    for number in range(most):
        row(f"GPU{number} bus id", lambda facts, n=number: _gpu(facts, n, "pci"))  # type: ignore[misc]
        row(f"GPU{number} UUID", lambda facts, n=number: _gpu(facts, n, "uuid"))  # type: ignore[misc]
        row(f"GPU{number} NUMA", lambda facts, n=number: _gpu(facts, n, "numa"))  # type: ignore[misc]
        row(f"GPU{number} NVLinks", lambda facts, n=number: _lanes(facts, n))  # type: ignore[misc]
    rates = {source: _rates(facts) for source, facts in reports.items() if not facts.hidden}
    for a in range(most):
        for b in range(a + 1, most):
            values = {source: known[a, b] for source, known in rates.items() if (a, b) in known}
            rows.append(Row(f"route GPU{a}-GPU{b}", values))
    return [entry for entry in rows if entry.values]


def _gpu(facts: Facts, number: int, field: str) -> object:
    return getattr(facts.gpus[number], field) if number < len(facts.gpus) else None


def _lanes(facts: Facts, number: int) -> int | None:
    """NVLinks of a GPU: its active ports where the source lists them, or else what it leads to."""
    ports = facts.ports.get(facts.gpus[number].name) if number < len(facts.gpus) else None
    if ports is not None and ports.complete:
        return len(ports.up)
    whole = build.complete(facts)
    if facts.hidden or number >= len(whole.gpus):
        return None
    return sum(b.lanes for b in whole.bundles or () if b.gpu == whole.gpus[number].name and not b.chip)


def _rates(facts: Facts) -> dict[tuple[int, int], str]:
    """Class and rate of each route as a topology of this source alone has it."""
    machine = build.topology(facts)
    routes = Routes.among(machine)
    rates = {}
    for a in range(len(machine.gpus)):
        for b in range(a + 1, len(machine.gpus)):
            route = [machine.links[int(p)] for p in routes.route(a, b)]
            slowest = min(route, key=lambda link: link.bytes_per_s)
            rates[a, b] = f"{slowest.link_class.value} {slowest.bytes_per_s / 1e9:g} GB/s"
    return rates


def gather() -> tuple[dict[str, Facts], list[str]]:
    """What each source of this machine says, and why others say nothing."""
    reports: dict[str, Facts] = {}
    failures: list[str] = []
    sources: dict[str, Callable[[], Facts]] = {
        "NVML": nvml.read,
        "nvidia-smi": live.nvidia_smi_output,
        "sysfs": sysfs.read,
        "NCCL": lambda: nccl_dump.read(len(reports["NVML"].gpus) if "NVML" in reports else 1),
    }
    for name, source in sources.items():
        try:
            reports[name] = source()
        except CaptureError as error:
            failures.append(error.message)
    return reports, failures


def table(rows: list[Row], failures: list[str]) -> str:
    """The comparison as text: one line per fact, ``!`` where sources disagree."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    widths = {name: max([len(name), *(len(row.values.get(name, "-")) for row in rows)]) + 2 for name in names}
    lines = ["  " + "fact".ljust(18) + "".join(name.ljust(widths[name]) for name in names)]
    for row in rows:
        cells = "".join(row.values.get(name, "-").ljust(widths[name]) for name in names)
        lines.append(f"{' ' if row.agrees else '!'} {row.fact.ljust(18)}{cells}".rstrip())
    lines += [f"not there: {failure}" for failure in failures]
    wrong = sum(not row.agrees for row in rows)
    return "\n".join([*lines, "all sources agree" if not wrong else f"{wrong} facts differ"])
