"""Plans of eight ranks for the GPU tests: ``python -m tests.gpu.make_inputs FOLDER``; needs the solver."""

import json
import sys
from pathlib import Path

from solver import portfolio
from synth import plan as plans
from synth.collective import Collective, Demand
from synth.topology import catalog
from tests.clusters import random_mesh


def main(folder):
    target = Path(folder)
    (target / "few").mkdir(parents=True, exist_ok=True)
    machines = {name: catalog.build(name) for name in ("asym8", "ndv2x1", "hgx-h100x1", "hgx-a100x1")}
    machines |= {f"random{seed}": random_mesh(8, seed) for seed in range(4)}
    for machine, topology in machines.items():
        for collective in Collective:
            demand = Demand(
                collective=collective, ranks=8, bytes=16_000_000, root=2 if collective.rooted else None,
                pairs=((0, 5), (5, 0), (2, 7), (1, 4), (3, 2)) if collective is Collective.SENDRECV else (),
            )  # fmt: skip
            plan = portfolio.solve(topology, demand, launch_ns=9000, seed=1).plan
            name = f"{machine}-{collective.value}.json"
            plans.save(plan, target / name)
            if machine == "ndv2x1" and collective.value in ("alltoall", "allreduce", "broadcast"):
                plans.save(plan, target / "few" / name)
            print(name, plan.rounds, plan.segments, len(plan.transfers))
    vectors = Path(__file__).resolve().parents[3] / "shared" / "data" / "vectors"
    for path in sorted(vectors.glob("*8-all*.json")) + sorted(vectors.glob("ndv2x1-*.json")):
        document = json.loads(path.read_text())
        if not document["valid"]:
            continue
        plan = plans.from_document(document["plan"])
        plan = plan.with_(segments=min(plan.segments, 6))  # any number of segments is a valid pipeline
        plans.save(plan, target / f"vector-{path.stem}.json")
        print(path.stem, plan.rounds, plan.segments, len(plan.transfers))


if __name__ == "__main__":
    main(sys.argv[1])
