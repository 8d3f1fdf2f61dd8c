"""Giving a plan to another machine of the same shape: equal fingerprints, other names or another document order."""

from __future__ import annotations

import numpy as np

from synth.errors import TopologyError
from synth.plan.ir import Plan
from synth.topology import Topology
from synth.topology.fingerprint import canonical_order


def rehome(plan: Plan, made_for: Topology, target: Topology) -> Plan:
    """The plan with its ranks, and its certificate's lengths, in the terms of the target topology.

    Args:
        plan: made for ``made_for``.
        made_for: the topology the plan's device ids and link order belong to.
        target: a topology of the same fingerprint.

    Raises:
        TopologyError: the fingerprints differ, or a rank is not on ``made_for``.
    """
    if made_for.fingerprint != target.fingerprint:
        raise TopologyError(
            f"topology {target.name}: has fingerprint {target.fingerprint[:12]}; the plan is for "
            f"{made_for.fingerprint[:12]}",
            subject=target.name,
        )
    there = [target.devices[position].id for position in canonical_order(target)]
    here = [made_for.devices[position].id for position in canonical_order(made_for)]
    renamed = dict(zip(here, there, strict=True))
    for rank in plan.ranks:
        made_for.device(rank)
    certificate = plan.certificate
    if certificate is not None and certificate.lengths is not None:
        lengths = np.empty_like(certificate.lengths)
        lengths[_canonical_links(target)] = certificate.lengths[_canonical_links(made_for)]
        certificate = type(certificate)(
            certificate.kind, certificate.bound_ns, lengths=lengths, latency_bound_ns=certificate.latency_bound_ns
        )
    elif certificate is not None:
        certificate = type(certificate)(
            certificate.kind,
            certificate.bound_ns,
            devices=tuple(renamed[device] for device in certificate.devices),
            latency_bound_ns=certificate.latency_bound_ns,
        )
    return plan.with_(ranks=tuple(renamed[rank] for rank in plan.ranks), certificate=certificate)


def _canonical_links(topology: Topology) -> list[int]:
    """Positions of the links in canonical order."""
    place = {device: number for number, device in enumerate(canonical_order(topology))}
    links = topology.links

    def key(position: int) -> tuple[int, int, str, float, float]:
        link = links[position]
        ends = place[topology.index[link.src]], place[topology.index[link.dst]]
        return (*ends, link.link_class.value, link.bytes_per_s, link.latency_ns)

    return sorted(range(len(links)), key=key)
