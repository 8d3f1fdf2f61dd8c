"""What one rank fetches and does before its first alltoall: ``python -m tests.bench.attach_slices``.

A server makes the even alltoall for the 512 GPUs of hgx-h100x64 (or of another catalog machine that is named), a
symmetric plan whose document is short, and gets the same plan written out, as long as any plan without symmetry.
Prints bytes on the wire, and processor seconds from the request to a sized program, of one rank.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Callable

import numpy as np

from runtime import slices
from server.store import Database
from server.store import plans as stored
from synth.client import Client, Environment, PlanRequest
from synth.plan import Plan
from synth.plan.lowering import Lowering
from synth.plan.symmetry import expand
from synth.topology import Topology, catalog
from synth.verifier import verify
from tests.bench.serving import serving

MACHINE = sys.argv[1] if len(sys.argv) > 1 else "hgx-h100x64"


def wire_bytes(url: str) -> tuple[int, float]:
    """(body of an answer, gzipped as the client asks for it, and seconds until it is here)."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as answer:
        return len(answer.read()), time.perf_counter() - began


def seconds(act: Callable[[], object]) -> float:
    """Processor time of this process."""
    began = time.process_time()
    act()
    return time.process_time() - began


def compare(name: str, url: str, digest: str, machine: Topology) -> None:
    """Print what the ways cost."""
    client, environment = Client(url, timeout=600), Environment(server=url, timeout=600)
    counts = np.full((len(machine.gpus), len(machine.gpus)), 1000)

    def checked() -> Plan:
        plan = client.plan(digest)
        assert not verify(plan, machine)
        return plan

    def leads() -> None:
        plan = checked()
        assert slices.may_slice(plan)
        slices.sums_of(plan)
        Lowering(slices.cut(plan, 0), 0).program(counts)

    def part() -> None:
        found, why = slices.fetch(environment, digest, 5, len(machine.gpus))
        assert found is not None, why
        slices.sums_of(found)
        Lowering(found, 5).program(counts)

    first = wire_bytes(f"{url}/v1/plans/{digest}/ranks/4")
    (whole, _), (sliced, took) = (wire_bytes(f"{url}/v1/plans/{digest}{tail}") for tail in ("", "/ranks/5"))
    print(f"{name}: {whole} B whole, {sliced} B slice; the first slice after {first[1]:.2f} s, the next {took:.3f} s")
    times = seconds(lambda: Lowering(checked(), 5).program(counts)), seconds(part), seconds(leads)
    print(f"  processor time: {times[0]:.2f} s whole, {times[1]:.3f} s slice, {times[2]:.2f} s rank 0 with slices")


def main() -> None:
    """Run it."""
    machine = catalog.build(MACHINE)
    with serving() as (url, database_path):
        request = PlanRequest(topology=machine, collective="alltoall", bytes=1 << 26)
        client = Client(url, timeout=600)
        client.post_topology(machine)
        client.post_plan(request, time_limit=120.0)
        resolved = client.resolve(request, wait=600)
        assert resolved is not None
        compare("symmetric", url, resolved.digest, machine)
        plan = expand(client.plan(resolved.digest)).with_(symmetry=None)
        values = {"digest": plan.digest, "collective": "alltoall", "ranks": len(plan.ranks), "text": plan.text}
        database = Database(database_path)
        with database.write() as connection:
            stored.add(connection, topology=request.topology_digest, now=time.time(), **values)
        compare("written out", url, plan.digest, machine)


if __name__ == "__main__":
    main()
