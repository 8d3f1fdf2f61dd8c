"""``synth demo``: the whole path on a real capture, without a GPU.

Probe a capture, start a server, have two plans made, start eight workers that fetch them and carry them out over MPI
on this machine's memory, check every byte, and print what the model says beside what was seen here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from synth import documents, topology, upper
from synth.cli.answer import Answer
from synth.cli.inputs import progress
from synth.client import Client, PlanRequest
from synth.collective import matrix_to_document
from synth.errors import InputError, ServiceError, SolveError
from synth.plan import Plan
from synth.plan.sizes import demand_of, input_bytes
from synth.simulator import LAUNCH_NS, simulate
from synth.simulator.gantt import gantt_svg
from synth.topology import Routes, Topology
from synth.units import format_bytes, format_rate, format_seconds

_SERVE = "from runtime.lifeline import hold_on; hold_on(); from synth.cli.main import main; main()"
"""The server as a process that ends when the demo does, even when that is killed."""

_MADE = ("synth.db", "cache", "seen.json")
"""What a demo leaves that would change a later one."""

EXPERTS, TOP_K, TOKENS, HIDDEN_BYTES = 64, 4, 4096, 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--smi", metavar="FILE", help="another capture of nvidia-smi topo -m; default eight V100s")
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help="keep what is made here, where no earlier demo was kept; default a new folder under the temp one",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the made-up routing of tokens to experts")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="give up after so many seconds")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table: model times on the captured machine, and wall times here."""

    collective: str
    bytes: int
    bound: float
    predicted: float
    direct: float
    measured: float
    native: float
    wrong_bytes: int
    digest: str


def run(args: argparse.Namespace) -> Answer:
    """Run the demo; exit 1 if a byte was wrong."""
    folder = _unused(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="synth-demo-"))
    deadline = time.monotonic() + args.timeout
    machine = _probe(args.smi, folder)
    matrix = routed_tokens(len(machine.gpus), args.seed)
    documents.write(folder / "demand.json", documents.canonical(matrix_to_document(matrix)))
    with _server(folder, deadline) as address:
        plans = _solve(address, machine, matrix, deadline)
        seen = _execute(address, folder, matrix, deadline)
    rows = [_row(plan, machine, matrix, seen["results"][name]) for name, plan in plans.items()]
    picture = folder / "alltoall.svg"
    _say(5, "synth simulate, and draw the timeline")
    shown = demand_of(plans["alltoall"])
    documents.write(picture, gantt_svg(plans["alltoall"], machine, shown, bound_seconds=rows[0].bound))
    ok = all(row.wrong_bytes == 0 for row in rows) and all("plan" in schedule for schedule in seen["schedules"])
    document = {
        "ok": ok,
        "topology": machine.fingerprint,
        "folder": str(folder),
        "timeline": str(picture),
        "workers": seen["reasons"],
        "results": [{field: getattr(row, field) for field in row.__slots__} for row in rows],
    }
    return Answer(document, _table(rows, len(machine.gpus), picture), exit=0 if ok else 1)


def _unused(keep: str) -> Path:
    """The folder to keep everything in; an earlier demo's database would answer instead of the solver.

    Raises:
        InputError: it cannot be made, or an earlier demo was kept there.
    """
    folder = Path(keep).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--keep {folder}: cannot be made ({error.strerror})", subject="--keep") from None
    left = next((name for name in _MADE if (folder / name).exists()), None)
    if left is not None:
        raise InputError(
            f"--keep {folder}: has {left} of an earlier demo, whose plans would be shown again; "
            "name another folder, or remove this one",
            subject="--keep",
        )
    return folder


def routed_tokens(ranks: int, seed: int) -> np.ndarray:
    """[ranks, ranks] bytes that a mixture-of-experts layer sends: experts of Zipf popularity, top-k routing."""
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(1.0 / np.arange(1, EXPERTS + 1) ** 0.8)
    chances = popularity / popularity.sum()
    counts = np.stack([rng.multinomial(TOKENS * TOP_K, chances) for _ in range(ranks)])
    sent: np.ndarray = counts.reshape(ranks, ranks, EXPERTS // ranks).sum(axis=2).astype(np.float64) * HIDDEN_BYTES
    np.fill_diagonal(sent, 0.0)
    return sent


def _say(number: int, what: str) -> None:
    progress(f"[{number}/5] {what}")


def _probe(capture: str | None, folder: Path) -> Topology:
    file = capture or str(Path(str(upper.load("probe").__file__)).parent / "captures" / "v100-sxm2-8gpu.txt")
    _say(1, f"synth probe --smi {os.path.relpath(file) if capture else 'captures/' + Path(file).name}")
    command = upper.load("probe.cli")
    parser = argparse.ArgumentParser()
    command.configure(parser)
    target = folder / "topology.json"
    command.run(parser.parse_args(["--smi", file, "--gpu", "Tesla V100-SXM2-32GB", "-o", str(target)]))
    machine = topology.load(target)
    rates = sorted({link.bytes_per_s for link in machine.links if link.link_class.value == "nvlink"})
    listed = " and ".join(format_rate(rate) for rate in rates) or "none"
    progress(f"      {len(machine.gpus)} GPUs, {len(machine.links)} links; NVLink of {listed}")
    ranks = len(machine.gpus)
    if ranks < 2 or EXPERTS % ranks:
        raise SolveError(f"{file}: has {ranks} GPUs; the demo spreads {EXPERTS} experts evenly over 2, 4, 8 or 16")
    return machine


@contextlib.contextmanager
def _server(folder: Path, deadline: float) -> Iterator[str]:
    """A server of our own on a free port, with its database in the folder."""
    _say(2, "synth serve --port 0")
    words = [sys.executable, "-c", _SERVE, "serve", "--port", "0", "--db", str(folder / "synth.db")]
    with open(folder / "server.log", "w", encoding="utf-8") as log, _child(words, log, dict(os.environ)) as process:
        line = _ready_line(process, folder / "server.log", deadline)
        progress(f"      {line}")
        yield line.rpartition(" ")[2]


def _ready_line(process: subprocess.Popen[bytes], log: Path, deadline: float) -> str:
    while time.monotonic() < deadline and process.poll() is None:
        lines = [line for line in log.read_text(encoding="utf-8").splitlines() if "listening on" in line]
        if lines:
            return lines[0]
        time.sleep(0.05)
    last = (log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"])[-1]
    how = "did not start in time" if process.poll() is None else "did not start"
    raise ServiceError(f"the demo's server {how}: {last}")


def _solve(address: str, machine: Topology, matrix: np.ndarray, deadline: float) -> dict[str, Plan]:
    """Have both plans made by the server and fetch them."""
    client = Client(address, timeout=max(deadline - time.monotonic(), 1.0))
    client.post_topology(machine)
    size = input_bytes(matrix)
    plans: dict[str, Plan] = {}
    for name, demand in (("alltoall", matrix), ("allreduce", None)):
        _say(3, f"POST {address}/v1/plans  {name}, {format_bytes(size)}{' skewed' if demand is not None else ''}")
        request = PlanRequest(topology=machine, collective=name, bytes=size, demand=demand)
        answer = client.resolve(request, wait=max(deadline - time.monotonic(), 1.0))
        assert answer is not None
        plans[name] = client.plan(answer.digest)
        solver = plans[name].solver
        progress(f"      plan {answer.digest[:12]}: {solver.get('strategy')}, {plans[name].rounds} rounds")
    return plans


def _execute(address: str, folder: Path, matrix: np.ndarray, deadline: float) -> dict[str, Any]:
    """Start the workers; each fetches its plans from the server and carries them out."""
    ranks = len(matrix)
    _say(4, f"mpiexec -n {ranks} python training_script.py   (each: ep = synth.attach())")
    environment = dict(os.environ) | {
        "SYNTH_SERVER": address,
        "SYNTH_TOPOLOGY": str(folder / "topology.json"),
        "SYNTH_DEMAND": str(folder / "demand.json"),
        "SYNTH_BYTES": str(input_bytes(matrix)),
        "SYNTH_CACHE": str(folder / "cache"),
        "SYNTH_TRANSPORT": "mpi",
        "SYNTH_TRIAL": "off",  # what is shown is the plan; wall times of one machine say nothing about another
    }
    start = upper.load("runtime.cli.run").launcher(ranks)
    words = [*start, sys.executable, "-m", "synth.cli.demo_rank", str(folder / "seen.json")]
    with open(folder / "workers.log", "w", encoding="utf-8") as log, _child(words, log, environment) as process:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        status = process.poll()
    said = (folder / "workers.log").read_text(encoding="utf-8").strip().splitlines()
    if status != 0 or not (folder / "seen.json").exists():
        how = "did not end in time" if status is None else f"ended with status {status}"
        raise ServiceError(f"the demo's workers {how}; see {folder / 'workers.log'}: {(said or ['nothing'])[-1]}")
    for line in said:
        progress(f"      {line}")
    seen: dict[str, Any] = documents.read(folder / "seen.json")
    return seen


def _row(plan: Plan, machine: Topology, matrix: np.ndarray, seen: dict[str, Any]) -> _Row:
    demand = demand_of(plan)
    routes = Routes.among(machine, plan.ranks)
    direct = upper.load("runtime.direct").direct_plan(plan.collective, len(plan.ranks), root=plan.root or 0)
    priced = simulate(plan, machine, demand, launch_ns=LAUNCH_NS, routes=routes)
    alone = simulate(direct, machine, demand, launch_ns=LAUNCH_NS, routes=routes)
    assert plan.certificate is not None
    return _Row(
        collective=plan.collective.value,
        bytes=demand.bytes,
        bound=plan.certificate.best_bound_ns * 1e-9,
        predicted=priced.seconds,
        direct=alone.seconds,
        measured=seen["seconds"],
        native=seen["native_seconds"],
        wrong_bytes=seen["wrong_bytes"],
        digest=plan.digest,
    )


def _table(rows: Sequence[_Row], ranks: int, picture: Path) -> str:
    wall = f"wall time here, {ranks} MPI ranks"
    lines = [
        f"{'':<10} {'':>9} | {'model time on the captured machine':<37} | {wall:<23} | {'wrong':>5}",
        f"{'':<10} {'bytes':>9} | {'bound':>9} {'planned':>9} {'direct':>9} {'gain':>7} | {'planned':>11} "
        f"{'native':>11} | {'bytes':>5}",
    ]
    for row in rows:
        model = [format_seconds(seconds) for seconds in (row.bound, row.predicted, row.direct)]
        seen = [format_seconds(seconds) for seconds in (row.measured, row.native)]
        lines.append(
            f"{row.collective:<10} {format_bytes(row.bytes):>9} | {model[0]:>9} {model[1]:>9} {model[2]:>9} "
            f"{row.direct / row.predicted:>6.1f}x | {seen[0]:>11} {seen[1]:>11} | {row.wrong_bytes:>5}"
        )
    lines += [
        "",
        "planned: synth's plan. direct: all pairs at once, as a library that does not look at the machine.",
        f"bound: proven; no schedule is faster. Model times count {LAUNCH_NS / 1000:g} us to start a round. Wall times",
        "show that the plan runs and moves the right bytes, not its speed: no link of that machine is here.",
        "",
        f"timeline of the alltoall: {picture}",
    ]
    return "\n".join(lines)


def _child(words: Sequence[str], log: IO[str], environment: dict[str, str]) -> Any:
    """A process that never outlives this one, with everything it says in a log."""
    return upper.load("runtime.lifeline").children(words, environment=environment, stdout=log, stderr=log)
