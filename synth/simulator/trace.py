"""The timeline as a Chrome trace, for chrome://tracing and Perfetto."""

from __future__ import annotations

from synth.collective import Demand
from synth.documents import Json
from synth.plan import Plan
from synth.simulator import timeline
from synth.simulator.loads import Loads
from synth.topology import Topology


def chrome_trace(plan: Plan, topology: Topology, demand: Demand) -> dict[str, Json]:
    """One row per link; each segment is an event on every link of its route, microseconds from the start.

    Raises:
        InvalidPlan: a transfer has no route.
        DemandError: the demand is not one this plan serves.
    """
    loads = Loads.of(plan, topology, demand)
    transfers = loads.plan.transfers
    used: set[int] = set()
    rows: list[Json] = []
    for event in timeline.events(loads):
        t = event.transfer
        chunk, src, dst = (int(getattr(transfers, name)[t]) for name in ("chunk", "src", "dst"))
        for link in loads.routes.route(src, dst).tolist():
            used.add(link)
            rows.append(
                {
                    "name": f"chunk {chunk}.{event.segment}",
                    "ph": "X",
                    "ts": event.start_ns / 1e3,
                    "dur": float(loads.segment_bytes[t]) / topology.links[link].bytes_per_s * 1e6,
                    "pid": 0,
                    "tid": link,
                    "args": {
                        "from": loads.plan.ranks[src],
                        "to": loads.plan.ranks[dst],
                        "round": int(transfers.round[t]) + event.segment,
                        "bytes": float(loads.segment_bytes[t]),
                    },
                }
            )
    names = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 0,
            "tid": link,
            "args": {"name": f"{topology.links[link].src} -> {topology.links[link].dst}"},
        }
        for link in sorted(used)
    ]
    return {"displayTimeUnit": "ns", "traceEvents": names + rows}
