"""The node's agent: reads the machine, reports it to the synth server, once or again and again when it changed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from synth import documents, topology
from synth.client import Client
from synth.errors import CaptureError, InputError, ServiceError
from synth.topology import Severity, Topology

LONGEST_PAUSE = 600.0
"""Seconds between tries while the server is away."""


def identity(machine: Topology) -> str:
    """Digest of what matters in a report: a new value means that the server should know.

    Sources, texts of findings and what is merely informative may vary from reading to reading.
    """
    document = topology.to_document(machine)
    links = [{key: value for key, value in link.items() if key != "source"} for link in document["links"]]
    noticed = sorted((f.code, f.subject) for f in machine.findings if f.severity is not Severity.INFO)
    return documents.digest({"devices": document["devices"], "links": links, "findings": noticed})


def report(client: Client, node: str, machine: Topology) -> documents.Json:
    """Send one report.

    Raises:
        ServiceError: the server cannot be used.
        InputError: it refuses the report.
    """
    return client.put_node_topology(node, machine)


def watch(
    read: Callable[[], Topology],
    client: Client,
    node: str,
    *,
    interval: float,
    stop: threading.Event,
    tell: Callable[[str], None],
) -> int:
    """Report now and after each change, until ``stop`` is set.

    A server that is away, or a driver that fails for a while, is told once and tried again; the pause doubles while
    the server stays away.

    Returns:
        how many reports the server took.
    """
    sent, known, trouble = 0, "", ""
    pause = interval
    while not stop.is_set():
        try:
            machine = read()
            now = identity(machine)
            if now != known:
                report(client, node, machine)
                tell(f"reported {node}: {len(machine.gpus)} GPUs, {len(machine.findings)} findings")
                known, sent = now, sent + 1
            if trouble:
                tell("working again")
            trouble, pause = "", interval
        except (ServiceError, InputError, CaptureError) as error:
            if error.message != trouble:
                tell(f"{error.message}; trying again")
            trouble = error.message
            pause = min(pause * 2, max(LONGEST_PAUSE, interval)) if isinstance(error, ServiceError) else interval
        stop.wait(pause)
    return sent


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, so that the agent ends between two readings with status 0."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop
