"""``attach`` of 128 ranks (threads of one process) to a real server: ``python -m tests.bench.attach_many``.

With slices and with whole plans in turns, no cache, so that every rank asks; wall and processor seconds of all ranks.
"""

from __future__ import annotations

import os
import threading
import time

from runtime import slices
from runtime.attach import attach
from runtime.communicators.local import LocalWorld
from synth.topology import catalog
from tests.bench.serving import serving

MACHINE = "hgx-h100x16"


def start(machine: object, ranks: int) -> tuple[float, float, set[str]]:
    """Attach all ranks: (wall seconds, processor seconds, plans in force)."""
    world, found = LocalWorld(ranks, deadline=120), []

    def rank(number: int) -> None:
        with attach(communicator=world.communicator(number), topology=machine, collectives=["alltoall"]) as ep:
            found.append(ep.stats().reasons["alltoall"][:17])

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks)]
    wall, busy = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == ranks
    return time.perf_counter() - wall, time.process_time() - busy, set(found)


def main() -> None:
    """Run it."""
    machine = catalog.build(MACHINE)
    os.environ |= {"SYNTH_QUIET": "1", "SYNTH_CACHE": "off", "SYNTH_TIMEOUT": "120", "SYNTH_WAIT": "60"}
    with serving() as (url, _):
        os.environ["SYNTH_SERVER"] = url
        start(machine, len(machine.gpus))  # the plan is made, the slices are cut
        for name, limit in (("slices", slices.WHOLE_RANKS), ("whole", 1 << 20)) * 2:
            slices.WHOLE_RANKS = limit
            wall, busy, plans = start(machine, len(machine.gpus))
            print(f"{name}: {wall:.1f} s, processor {busy:.1f} s, {', '.join(plans)}")


if __name__ == "__main__":
    main()
