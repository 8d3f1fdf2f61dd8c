"""Several GPUs of one machine, in one command under ten minutes: ``python -m tests.bench.gpus PLANS [OUT]``.

Measures what one machine of 2, 4 or 8 GPUs can show: every collective from 1 KiB to 1 GiB with plans, the direct
exchange, NCCL's own and torch.distributed's where torch is, pairwise in one run; alltoall and sendrecv as groups of
CuPy's binding; alltoall with Zipf 0.8 and 1.2; failure; the tuner. PLANS is a folder of plan files (plans for another
number of ranks are left out). With one GPU it starts eight ranks on it: data is checked, times mean nothing then. Full
rows go to OUT/gpus.json; a short table is printed last.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from tests.gpu.ranks import ROOT, SAFE, launch

COLLECTIVES = ("alltoall", "allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "sendrecv")


def bench(folder, ranks, collective, least, most, *words, transport="nccl", timeout=120):
    """Rows of one ``synth bench``, and what went wrong."""
    result = Path(folder) / "rows.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "synth", "bench", collective, "-b", least, "-e", most, "-g", str(ranks),
               "-J", str(result), "--transport", transport, "--timeout", str(timeout), *words]  # fmt: skip
    variables = {**os.environ, **SAFE, "NCCL_MULTI_RANK_GPU_ENABLE": "1", "SYNTH_QUIET": "1"}
    if os.environ.get("SYNTH_TEST_NCCL"):
        variables["LD_PRELOAD"] = os.environ["SYNTH_TEST_NCCL"]
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=timeout + 60)
    rows = json.loads(result.read_text())["rows"] if result.exists() else []
    return rows, "" if done.returncode == 0 else (done.stderr or done.stdout)[-800:]


def tuned(folder, ranks, timeout=170):
    """What ``synth bench --tune`` finds for the direct alltoall of 1 GiB, from the settings most likely to help."""
    result = Path(folder) / "tuned.json"
    words = f"bench alltoall -b 1GiB -g {ranks} -n 5 -w 2 --schedules direct --transport nccl --tune --tune-rounds 2"
    command = [sys.executable, "-m", "synth", *words.split(), "-J", str(result)]
    for setting in ("NCCL_MIN_P2P_NCHANNELS=32", "NCCL_P2P_NVL_CHUNKSIZE=1048576", "NCCL_BUFFSIZE=8388608"):
        command += ["--setting", setting]
    try:
        done = subprocess.run(
            command, env={**os.environ, **SAFE, "SYNTH_QUIET": "1"}, cwd=ROOT, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, f"(not done after {timeout} s)"
    found = json.loads(result.read_text()) if result.exists() else {}
    return found, "" if done.returncode == 0 else (done.stderr or done.stdout)[-800:]


def short(rows):
    """One line per size: each schedule's time and its ratio to the native one."""
    lines, by_size = [], {}
    for row in rows:
        by_size.setdefault(row["bytes"], {})[row["schedule"].split(" ")[0]] = row
    for size, found in by_size.items():
        base = found.get("native") or found["direct"]
        cells = [f"{name} {row['seconds'] * 1e6:.1f} us ({row['seconds'] / base['seconds']:.2f})"
                 for name, row in found.items()]  # fmt: skip
        lines.append(f"   {size:>12} B  " + "  ".join(cells))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans")
    parser.add_argument("out", nargs="?", default=".")
    parser.add_argument("--quick", action="store_true", help="few sizes: to try the script")
    parser.add_argument("--only", nargs="+", choices=COLLECTIVES)
    parser.add_argument("--transport", default="nccl")
    parser.add_argument("--ranks", type=int, default=None)
    args = parser.parse_args()
    began, results, lines = time.monotonic(), {}, []
    gpus = 0
    if args.transport != "mpi":
        import cupy

        gpus = cupy.cuda.runtime.getDeviceCount()
    ranks = args.ranks or (gpus if gpus > 1 else 8)
    given = sorted(str(path) for path in Path(args.plans).glob("*.json"))
    schedules = ("--schedules", "plan,direct,native" + (",torch" if find_spec("torch") else ""))
    cases = [(c, c, schedules, args.transport) for c in args.only or COLLECTIVES]
    if not args.only:
        cases += [
            (f"alltoall, Zipf {z}", "alltoall", (*schedules, "--skew", z), args.transport) for z in ("0.8", "1.2")
        ]
    if args.transport == "nccl" and not args.only:
        cases += [(f"{c}, CuPy's groups", c, schedules, "nccl-cupy") for c in ("alltoall", "sendrecv")]
    for name, collective, words, transport in cases:
        words = [*words, *(word for path in given for word in ("--plan", path))]
        least, most, factor, turns = ("1KiB", "1GiB", "16", "20") if not args.quick else ("1KiB", "1MiB", "32", "3")
        rows, trouble = bench(args.out, ranks, collective, least, most, "-f", factor, "-n", turns, "-w", "3", *words,
                              transport=transport)  # fmt: skip
        wrong = sum(row["wrong_bytes"] or 0 for row in rows)
        results[name] = {"rows": rows, "trouble": trouble}
        lines += [
            f"{name}: {'every byte is right' if rows and not wrong else 'WRONG or failed: ' + trouble}",
            *short(rows),
        ]
        print(lines[-1 - len(short(rows))], f"({time.monotonic() - began:.0f} s so far)", flush=True)
        (Path(args.out) / "gpus.json").write_text(json.dumps(results))
    if args.transport != "mpi" and ranks > 1 and not args.only:
        _, answers, log = launch(ranks, "failure", "dies", timeout=60)
        survivors = [rank[0] for rank in answers[:-1] if rank]
        results["failure"] = survivors or log
        lines.append(f"failure: {[round(answer['seconds'], 2) for answer in survivors]} s until the survivors knew")
    if gpus > 1 and not args.only:
        results["tuned"], trouble = tuned(args.out, ranks)
        gain = results["tuned"].get("gain")
        lines.append(f"settings at 1 GiB: {gain} times as fast with {results['tuned'].get('kept')} {trouble}")
    (Path(args.out) / "gpus.json").write_text(json.dumps(results))
    note = "" if gpus > 1 else "; ranks share a device, so times mean nothing"
    print("\n".join(["", f"{ranks} ranks on {gpus} GPUs over {args.transport}{note}", *lines]))


if __name__ == "__main__":
    main()
