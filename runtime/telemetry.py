"""Telling the server what each edge achieved, when a group closes; never fails a job and hardly delays it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

from runtime.plans import Source
from runtime.stats import Stats
from synth.client import Client, Environment
from synth.topology import Topology

SEND_SECONDS = 2.0
"""What a report may take in all; then it is given up."""
WAIT_SECONDS = 0.25
"""How long ``close`` waits for it; a process that ends earlier takes it along."""


def report(source: Source, ranks: tuple[str, ...], stats: Stats) -> threading.Thread | None:
    """Start reporting this rank's edges; None where nothing is to be reported.

    Args:
        source: names server and topology, and says whether reports are wanted.
        ranks: device of each rank.
        stats: of the group.
    """
    environment, topology = source.environment, source.topology
    if not source.telemetry or environment is None or environment.server is None or topology is None:
        return None
    found = stats.edges
    if max(found, default=0) >= len(ranks) or stats.rank >= len(ranks):
        return None
    edges = [
        (ranks[stats.rank], ranks[peer], float(edge.timed_bytes), edge.seconds)
        for peer, edge in sorted(found.items())
        if edge.timed_bytes > 0 and edge.seconds > 0
    ]
    if not edges:
        return None
    thread = threading.Thread(target=_send, args=(environment, topology, edges), daemon=True, name="synth-telemetry")
    thread.start()
    return thread


def _send(environment: Environment, topology: Topology, edges: list[tuple[str, str, float, float]]) -> None:
    limit = replace(environment, timeout=min(environment.timeout, SEND_SECONDS))
    with contextlib.suppress(Exception):  # whatever goes wrong here is not the job's concern
        Client.from_environment(limit).post_telemetry(topology.fingerprint, edges)
