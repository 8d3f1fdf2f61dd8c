"""``synth bench``: time collectives with the flags and columns of nccl-tests.

Started inside a job (torchrun, mpiexec, srun) it is one of the ranks; elsewhere it starts local ranks itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from runtime import bench, bench_torch
from runtime.bench import Options, sizes_between
from runtime.cli import tune
from runtime.cli.run import DTYPES, found_by, launcher, module_path
from runtime.communicators import Communicator
from runtime.communicators.open import TRANSPORTS, open_communicator
from runtime.lifeline import hold_on
from runtime.place import find_place
from synth import documents
from synth.cli.answer import Answer
from synth.collective import Collective
from synth.errors import InputError, SynthError
from synth.units import parse_size

RESULT = "SYNTH_BENCH_RESULT"
"""File that rank 0 of ranks started by this command writes."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments; short forms are nccl-tests'."""
    add = parser.add_argument
    add("collective", choices=[c.value for c in Collective])
    add("-b", "--minbytes", default="1MiB", metavar="N", help="smallest size, default 1MiB")
    add("-e", "--maxbytes", default=None, metavar="N", help="largest size, default the smallest")
    add("-f", "--stepfactor", type=float, default=2.0, metavar="F", help="factor between sizes, default 2")
    add("-i", "--stepbytes", default=None, metavar="N", help="fixed step between sizes instead")
    add("-n", "--iters", type=int, default=20, metavar="K", help="timed iterations; their median counts")
    add("-w", "--warmup_iters", type=int, default=5, metavar="K")
    add("-d", "--datatype", choices=sorted(DTYPES), default="float32")
    add("-o", "--op", choices=["sum", "min", "max", "prod"], default="sum")
    add("-r", "--root", type=int, default=0)
    add("-c", "--check", type=int, choices=[0, 1], default=1, help="check the results")
    add("-g", "--ranks", type=int, default=8, metavar="K", help="local ranks to start, where no launcher did")
    add("-J", "--output", metavar="FILE", help="also write the rows as JSON")
    add("--skew", type=float, default=0.0, metavar="Z", help="alltoall: exponent of Zipf's law for the targets")
    add("--plan", action="append", default=[], metavar="PLAN", help="plan file to compare; may be repeated")
    add("--schedules", default="plan,direct,native", metavar="LIST", help="of plan, direct, native, torch")
    add("--transport", choices=["auto", *TRANSPORTS], default=None)
    add("--deadline", type=float, default=60.0, metavar="S", help="seconds a rank may stay silent")
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds for everything; with --tune for each start")
    tune.configure(parser)


def run_here(args: argparse.Namespace, communicator: Communicator) -> list[dict[str, Any]]:
    """This rank's measurement."""
    least = parse_size(args.minbytes, subject="--minbytes")
    most = parse_size(args.maxbytes, subject="--maxbytes") if args.maxbytes else least
    step = parse_size(args.stepbytes, subject="--stepbytes") if args.stepbytes else None
    options = Options(
        collective=args.collective,
        sizes=sizes_between(least, most, args.stepfactor, step),
        dtype=args.datatype,
        itemsize=DTYPES[args.datatype],
        op=args.op,
        root=args.root,
        iterations=max(args.iters, 1),
        warmup=max(args.warmup_iters, 0),
        skew=args.skew,
        check=bool(args.check),
        schedules=tuple(args.schedules.split(",")),
        plan_files=tuple(args.plan),
    )
    with bench_torch.process_group(communicator) if "torch" in options.schedules else nullcontext():
        return bench.run(communicator, options)


def run(args: argparse.Namespace) -> Answer:
    """Measure as a rank, or start ranks that do."""
    if unknown := set(args.schedules.split(",")) - {"plan", "direct", "native", "torch"}:
        raise InputError(f"--schedules: {min(unknown)!r} is not known; take some of plan,direct,native,torch")
    place = find_place()
    if args.tune:
        if place is not None:
            raise InputError("--tune: starts its ranks itself; start it without a launcher")
        return tune.run(args, lambda setting: _start(args, setting))
    if place is None:
        found = _start(args)
    else:
        hold_on()
        if "torch" in args.schedules.split(","):
            bench_torch.load()
        communicator = open_communicator(args.transport or "auto", place, args.deadline)
        rows = run_here(args, communicator)
        communicator.close()
        found = {"transport": communicator.name, "ranks": communicator.size, "rows": rows}
        if place.rank == 0 and os.environ.get(RESULT):
            documents.write(os.environ[RESULT], json.dumps(found))
        if place.rank != 0 or os.environ.get(RESULT):
            return Answer(None, "")
    if args.output:
        documents.write(args.output, json.dumps(found))
    wrong = sum(row["wrong_bytes"] or 0 for row in found["rows"])
    return Answer({"collective": args.collective, **found}, table(args.collective, found), 1 if wrong else 0)


def _start(args: argparse.Namespace, setting: Mapping[str, str] | None = None) -> dict[str, Any]:
    transport = args.transport or "mpi"
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as folder:
        result = Path(folder) / "rows.json"
        environment = {
            **os.environ,
            RESULT: str(result),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": module_path(),
            **(setting or {}),
        }
        asked = Path(folder) / "options.json"
        given = {
            key: value
            for key, value in vars(args).items()
            if value is None or isinstance(value, str | int | float | list)
        }
        documents.write(asked, json.dumps({**given, "transport": transport, "tune": False}))
        command = [sys.executable, "-P", "-m", "runtime.cli.bench", str(asked)]
        if transport != "mpi":
            environment |= {"SYNTH_RENDEZVOUS": f"{folder}/meet"}
            command = [sys.executable, "-P", "-m", "runtime.cli.bench", str(asked), "spawn", str(args.ranks)]
        else:
            command = [*launcher(args.ranks), *command]
        return found_by(command, environment, result, args.timeout)


def table(collective: str, found: dict[str, Any]) -> str:
    """The rows in nccl-tests' columns, with the schedule added."""
    lines = [
        f"# {collective}, {found['ranks']} ranks over {found['transport']}; time is the slowest rank's median",
        f"#{'size':>12} {'count':>12} {'type':>9} {'redop':>6} {'root':>5} {'schedule':>14} "
        f"{'time':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>7}",
        f"#{'(B)':>12} {'(elements)':>12} {'':>9} {'':>6} {'':>5} {'':>14} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8}",
    ]
    for row in found["rows"]:
        wrong = "N/A" if row["wrong_bytes"] is None else row["wrong_bytes"]
        lines.append(
            f" {row['bytes']:>12} {row['count']:>12} {row['dtype']:>9} {row['op']:>6} {row['root']:>5} "
            f"{row['schedule']:>14} {row['seconds'] * 1e6:>10.1f} {row['algbw_bytes_per_s'] / 1e9:>8.2f} "
            f"{row['busbw_bytes_per_s'] / 1e9:>8.2f} {wrong:>7}"
        )
    return "\n".join(lines)


def _spawn(asked: str, count: int) -> int:
    """Start ranks without MPI: for NCCL each on the GPU of its number, several on one where there are too few."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "runtime.cli.bench", asked],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    statuses = [process.wait() for process in processes]
    return next((status for status in statuses if status), 0)


def _rank(asked: str) -> int:
    try:
        return run(argparse.Namespace(**documents.read(asked))).exit
    except SynthError as error:
        place = find_place()
        print(f"rank {'?' if place is None else place.rank}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    hold_on()
    sys.exit(_spawn(sys.argv[1], int(sys.argv[3])) if sys.argv[2:3] == ["spawn"] else _rank(sys.argv[1]))
