"""Everything about GPUs in one command: ``python -m tests.gpu.run_all PLANS [OUT] [--budget S] [--only NAME ...]``.

PLANS is a folder of plan files for eight ranks (tests.gpu.make_inputs writes one where the solver is installed). Ranks
share one GPU where there are too few, which needs NCCL 2.30 or newer (``SYNTH_TEST_NCCL=path of libnccl.so.2`` where
another one is installed). Steps run in the order of their value, each with a time limit of its own; what is left of
the budget bounds it too, and a step that cannot start any more is said to be skipped. OUT/gpu.json and OUT/table.txt
are written after every step, so that a run that is cut short keeps what it found.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.client.stub import reply, stub
from tests.gpu.ranks import ROOT, SAFE, launch


class Run:
    """The steps so far."""

    def __init__(self, out, budget, only):
        self.out, self.only = Path(out) if out else None, only
        self.until = time.monotonic() + budget
        self.results, self.table = {}, []

    def step(self, name, limit, act):
        """Run one step: ``act(seconds it may take)``."""
        if self.only and name.split(" ")[0].rstrip(",") not in self.only:
            return
        began = time.monotonic()
        left = min(limit, self.until - began)
        if left < min(limit, 8):
            verdict = "skipped: no time is left"
        else:
            try:
                self.results[name] = act(left)
                verdict = "ok"
            except Exception as error:  # the next steps still run
                self.results[name] = {"failed": str(error)}
                verdict = f"FAILED: {str(error)[-2500:]}"
        self.table.append(f"{name:<34} {time.monotonic() - began:6.1f} s  {verdict}")
        print(self.table[-1], flush=True)
        if self.out:
            (self.out / "gpu.json").write_text(json.dumps(self.results, indent=1))
            (self.out / "table.txt").write_text("\n".join(self.table) + "\n")


def started(size, *arguments, timeout, **options):
    """What each rank left; all ranks have to end well."""
    statuses, answers, log = launch(size, *arguments, timeout=timeout, **options)
    for row in answers[0]:
        print("  ", json.dumps(row)[:600], flush=True)
    if any(status != 0 for status in statuses):
        raise AssertionError(f"statuses {statuses}\n{log}")
    return answers[0]


def alone(module, *arguments, timeout, preload=True):
    """Run a module in a process of its own; its last line of JSON, if it prints one."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if preload and os.environ.get("SYNTH_TEST_NCCL"):
        variables["LD_PRELOAD"] = os.environ["SYNTH_TEST_NCCL"]
    command = [sys.executable, "-u", "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, env=variables, cwd=ROOT, timeout=timeout, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        text, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        text, status = (error.stdout or b"").decode(errors="replace"), "timeout"
    print(text[-6000:], flush=True)
    if status != 0:
        raise AssertionError(f"status {status}: {text[-1500:]}")
    lines = text.strip().splitlines()
    with contextlib.suppress(json.JSONDecodeError, IndexError):
        return json.loads(lines[-1])
    return lines[-80:]


def plans_step(size, folder, transport, *options, timeout):
    """Every plan of a folder; no byte may be wrong on any rank."""
    statuses, answers, log = launch(size, "plans", folder, *options, transport=transport, timeout=timeout)
    for row in answers[0]:
        print("  ", row, flush=True)
    wrong = sum(row.get("wrong", 0) for rank in answers for row in rank)
    if wrong or any(status != 0 for status in statuses):
        raise AssertionError(f"{wrong} bytes are wrong; statuses {statuses}\n{log}")
    return answers[0]


def failure_step(what, timeout, size=4):
    """The last rank is lost; all others name it and go on."""
    statuses, answers, log = launch(size, "failure", what, timeout=timeout)
    survivors = [rank[0] for rank in answers[:-1] if rank]
    for answer in survivors:
        print("  ", answer, flush=True)
    if len(survivors) != size - 1 or any(answer["rank"] != size - 1 for answer in survivors):
        raise AssertionError(f"statuses {statuses}\n{log}")
    return survivors


def ended_step(timeout):
    """With a binding that cannot be interrupted, ranks end with the documented status."""
    statuses, _, log = launch(3, "failure", "dies", transport="nccl-cupy", timeout=timeout)
    print("  ", statuses, log[-300:].replace("\n", " "), flush=True)
    if statuses[:2] != [76, 76]:
        raise AssertionError(f"{statuses}\n{log}")
    return statuses


def trial_step(folder, timeout):
    """Trials, prices, device times, and what reaches a server at close."""
    with stub(reply("404 Not Found", b'{"code": "unknown", "detail": "no"}')) as server:
        rows = started(8, "trial", folder, timeout=timeout, SYNTH_SERVER=server.url, SYNTH_TELEMETRY="on",
                       SYNTH_TIMEOUT="2", SYNTH_CACHE="off")  # fmt: skip
        time.sleep(0.5)
        told = [one.partition(b"\r\n\r\n")[2] for one in server.requests if one.startswith(b"POST /v1/telemetry")]
    reports = [json.loads(one) for one in told]
    print("  ", len(reports), "reports;", json.dumps(reports[:1])[:300], flush=True)
    if len(reports) != 8 or not all(edge["seconds"] > 0 for report in reports for edge in report["edges"]):
        raise AssertionError(f"{len(reports)} reports instead of 8: {reports[:2]}")
    return {"rows": rows, "reports": len(reports), "first": reports[0]}


def main(plans, out=None, budget=600.0, only=(), another=None):
    """Run all steps; True where one failed."""
    os.environ.update(SAFE)
    run = Run(out, budget, only)
    few = f"{plans}/few"
    run.step("fixed, 8 ranks", 40, lambda s: started(8, "fixed", plans, timeout=s))
    run.step("registered, 8 ranks", 80, lambda s: started(8, "registered", plans, timeout=s))
    run.step("classes, 8 ranks", 40, lambda s: started(8, "classes", plans, timeout=s))
    run.step("classes beside each other, 8 ranks", 40,
             lambda s: started(8, "classes", plans, timeout=s, NCCL_LAUNCH_ORDER_IMPLICIT="1"))  # fmt: skip
    run.step("trial, 8 ranks", 40, lambda s: trial_step(plans, s))
    run.step("few plans, 8 ranks", 40, lambda s: plans_step(8, few, "nccl", "quick", timeout=s))
    run.step("libraries", 25, lambda s: alone("tests.gpu.libraries", *([another] if another else []), timeout=s,
                                              preload=False))  # fmt: skip
    run.step("failure dies, 4 ranks", 30, lambda s: failure_step("dies", s))
    run.step("torch, 4 ranks", 60, lambda s: started(4, "torch", timeout=s))
    run.step("graphs, 4 ranks", 40, lambda s: started(4, "graphs", timeout=s))
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    run.step("segments, 4 ranks", 40, lambda s: started(4, "segments", timeout=s, **segments))
    run.step("segments in graphs, 4 ranks", 40,
             lambda s: started(4, "graphs", timeout=s, NCCL_GRAPH_REGISTER="0", **segments))  # fmt: skip
    run.step("experts, 8 ranks", 60, lambda s: started(8, "experts", timeout=s))
    run.step("failure in-capture, 4 ranks", 40, lambda s: failure_step("in-capture", s))
    run.step("order nccl4py, 4 ranks", 60, lambda s: started(4, "order", timeout=s))
    run.step("group nccl4py, 8 ranks", 60, lambda s: started(8, "group", plans, timeout=s))
    for what in ("stalls", "before-connect"):
        run.step(f"failure {what}, 4 ranks", 40, lambda s, what=what: failure_step(what, s))
    run.step("cupy-failure, 3 ranks", 60, ended_step)
    run.step("cupy, 8 ranks", 100, lambda s: plans_step(8, few, "nccl-cupy", "quick", timeout=s))
    run.step("statistics, 2 ranks", 90, lambda s: started(2, "statistics", plans, timeout=s))
    run.step("bandwidth of kernels", 60, lambda s: alone("tests.gpu.kernels", timeout=s))
    run.step("plans nccl4py, 8 ranks", 200, lambda s: plans_step(8, plans, "nccl", timeout=s))
    run.step("sweep of kernel shapes", 50, lambda s: alone("tests.gpu.sweep", *([out] if out else []), timeout=s))
    print("\n".join(["", *run.table]), flush=True)
    return any("FAILED" in row for row in run.table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--budget", type=float, default=600.0, metavar="S", help="seconds for everything")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="first words of steps")
    parser.add_argument("--another", metavar="LIBNCCL", help="another version of libnccl.so.2 than torch's")
    given = parser.parse_args()
    sys.exit(main(given.plans, given.out, given.budget, given.only, given.another))
