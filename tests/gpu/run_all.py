"""Everything about GPUs in one command, under ten minutes: ``python -m tests.gpu.run_all PLANS [OUT]``.

PLANS is a folder of plan files for eight ranks (tests.gpu.make_inputs writes one where the solver is installed);
OUT receives full results as JSON. Ranks share one GPU where there are too few, which needs NCCL 2.30 or newer
(``SYNTH_TEST_NCCL=path of libnccl.so.2`` where another one is installed). Prints a short table last.
"""

import json
import os
import sys
import time
from pathlib import Path

from tests.gpu.ranks import SAFE, launch


def main(plans, out=None, *only):
    os.environ.update(SAFE)
    results, table = {}, []

    def phase(name, act):
        if only and name.split(" ")[0] not in only:
            return
        began = time.monotonic()
        try:
            results[name] = act()
            verdict = "ok"
        except Exception as error:  # the next phases still run
            results[name] = {"failed": str(error)}
            verdict = f"FAILED: {str(error)[-1500:]}"
        table.append(f"{name:<34} {time.monotonic() - began:6.1f} s  {verdict}")
        print(table[-1], flush=True)
        if out:
            (Path(out) / "gpu.json").write_text(json.dumps(results, indent=1))

    def kernels():
        from tests.gpu.kernels import main as measure

        rows = measure()
        for what, mib, rate, ratio in rows:
            print(f"   {what:<22} {mib:>5} MiB {rate / 1e9:8.0f} GB/s  {ratio:5.2f} of a plain copy", flush=True)
        return rows

    def started(size, *arguments, **options):
        statuses, answers, log = launch(size, *arguments, **options)
        if any(status != 0 for status in statuses):
            raise AssertionError(f"statuses {statuses}; {answers[0][-1:]}\n{log}")
        return answers

    def executed(size, folder, transport, *options):
        answers = started(size, "plans", folder, *options, transport=transport, timeout=100)
        wrong = sum(row.get("wrong", 0) for rank in answers for row in rank)
        for row in answers[0]:
            print("  ", row, flush=True)
        assert wrong == 0, f"{wrong} bytes are wrong"
        return answers[0]

    def failed(what, size=4):
        statuses, answers, log = launch(size, "failure", what, timeout=60)
        survivors = [rank[0] for rank in answers[:-1] if rank]
        assert len(survivors) == size - 1, f"statuses {statuses}\n{log}"
        for answer in survivors:
            print("  ", answer, flush=True)
        assert all(answer["rank"] == size - 1 for answer in survivors)
        return survivors

    def ended():
        statuses, _, log = launch(3, "failure", "dies", transport="nccl-cupy", timeout=60)
        print("  ", statuses, log[-300:].replace("\n", " "), flush=True)
        assert statuses[:2] == [76, 76], f"{statuses}\n{log}"
        return statuses

    phase("kernels", kernels)

    def ordered(transport):
        answers = started(4, "order", transport=transport)
        for rank in answers:
            for row in rank:
                if row.get("wrong", 1):
                    print("  ", row, flush=True)
        assert all(row.get("wrong", 0) == 0 for rank in answers for row in rank)
        return answers[0]

    phase("order nccl4py, 4 ranks", lambda: ordered("nccl"))
    phase("order-cupy, 4 ranks", lambda: ordered("nccl-cupy"))

    def shown(size, *arguments):
        answers = started(size, *arguments)
        print("  ", answers[0][-1], flush=True)
        return answers

    phase("group nccl4py, 8 ranks", lambda: shown(8, "group", plans))
    phase("torch, 4 ranks", lambda: shown(4, "torch"))
    for what in ("dies", "stalls", "before-connect", "in-capture"):
        phase(f"failure {what}, 4 ranks", lambda what=what: failed(what))
    phase("cupy-failure, 3 ranks", ended)
    phase("cupy, 8 ranks", lambda: executed(8, f"{plans}/few", "nccl-cupy", "quick"))
    phase("plans nccl4py, 8 ranks", lambda: executed(8, plans, "nccl"))
    print("\n".join(["", *table]), flush=True)
    return any("FAILED" in row for row in table)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
