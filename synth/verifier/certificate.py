"""Checking a bound without a solver.

For link lengths l, a hop's weight is the sum of l along its route. Every byte of a block spends at least the weight
of the cheapest way to deliver that block, and in time t link e offers at most rate(e) * t * l(e) of weight, so

    t >= sum over blocks (bytes * cheapest) / sum over links (rate * length).

On a large machine one block of each orbit is looked at. That proves as much where permutations of the ranks are shown
to be automorphisms of links and routes (:mod:`synth.topology.automorphism`), and leave lengths and demand as they are:
then all blocks of an orbit have the same cheapest delivery.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.collective import EVERY, Collective, Demand, by_orbit
from synth.collective.cheapest import cheapest_deliveries, shortest_paths
from synth.errors import PlanError
from synth.plan.ir import Certificate
from synth.topology import Routes
from synth.topology.kinds import Kinds

ONE_BY_ONE = 4096
"""Certificates of more ranks are checked by the orbits of symmetries only."""


def proven_bound_ns(certificate: Certificate, routes: Routes, demand: Demand) -> float:
    """What a certificate proves for a demand, in nanoseconds; its stated bound is not looked at.

    Args:
        certificate: lengths in the order of ``routes.topology.links``, or one side of a cut.
        routes: among the ranks, helpers last; those under a group are looked at for one rank of each orbit, where the
            lengths are the same on all links of an orbit and the demand is as symmetric.
        demand: what must be delivered.

    Raises:
        PlanError: the certificate does not fit the topology.
    """
    if certificate.lengths is not None:
        return _lengths_bound_ns(certificate.lengths, routes, demand)
    return _cut_bound_ns(certificate.devices, routes, demand)


def proven_together_ns(certificate: Certificate, parts: Sequence[tuple[Routes, Demand]]) -> float:
    """What a certificate proves for several demands that run at the same time on shared links, in nanoseconds.

    Each spends what it would alone, and the links offer what they do once, so what is proven for each adds up.

    Args:
        certificate: of kind ``lengths``.
        parts: routes among each group's ranks, on one topology, and what the group exchanges.

    Raises:
        PlanError: the certificate does not fit the topology.
    """
    return sum(proven_bound_ns(certificate, routes, demand) for routes, demand in parts)


def _lengths_bound_ns(lengths: np.ndarray, routes: Routes, demand: Demand) -> float:
    links = routes.topology.links
    if len(lengths) != len(links):
        raise PlanError(
            f"certificate: has {len(lengths)} lengths; topology {routes.topology.name} has {len(links)} links",
            subject="certificate",
        )
    largest = lengths.max(initial=0.0)
    if largest == 0:
        return 0.0
    scaled = lengths / largest  # the bound does not change with scale; this keeps sums in range
    offered = float((routes.topology.bytes_per_s * scaled).sum())
    kinds = kinds_for(routes, demand)
    if kinds is not None and (scaled[kinds.group.links] == scaled).all():
        by_orbit_of_links = np.empty(int(kinds.group.link_orbit.max()) + 1)
        by_orbit_of_links[kinds.group.link_orbit] = scaled
        return by_orbit.least_total(kinds, kinds.weights(by_orbit_of_links), demand) / offered * 1e9
    if routes.ranks > ONE_BY_ONE:
        raise PlanError(
            f"certificate: {routes.ranks} ranks are too many to be looked at one by one, more than {ONE_BY_ONE}; "
            "it can be checked with symmetries under which its lengths are the same",
            subject="certificate",
        )
    sizes = demand.blocks.size
    cheapest = cheapest_deliveries(routes.hop_weights(scaled), demand)
    needed = float((sizes[sizes > 0] * cheapest[sizes > 0]).sum())
    return needed / offered * 1e9


def kinds_for(routes: Routes, demand: Demand) -> Kinds | None:
    """The kinds of hops under the routes' group where the demand looks the same to all of it; else None."""
    group = routes.group
    if group is None or demand.collective is Collective.SENDRECV or demand.ranks != routes.ranks:
        return None
    if demand.root is not None and not group.fixed[demand.root]:
        return None
    if demand.matrix is not None:
        for image in group.generators:
            if not (demand.matrix[np.ix_(image, image)] == demand.matrix).all():
                return None
    return routes.kinds


def _cut_bound_ns(devices: tuple[str, ...], routes: Routes, demand: Demand) -> float:
    topology = routes.topology
    unknown = [device for device in devices if device not in topology.index]
    if unknown:
        raise PlanError(f"certificate: names {unknown[0]}, which is not on {topology.name}", subject="certificate")
    inside = set(devices)
    leaving = sum(link.bytes_per_s for link in topology.links if link.src in inside and link.dst not in inside)
    within = np.array([device in inside for device in routes.devices[: demand.ranks]])
    blocks = demand.blocks
    starts = np.where(blocks.origin == EVERY, within.any(), within[blocks.origin])
    ends = np.where(blocks.target == EVERY, (~within).any(), ~within[blocks.target])
    needed = float(blocks.size[starts & ends].sum())
    if needed == 0:
        return 0.0
    return needed / leaving * 1e9 if leaving else float("inf")


def latency_bound_ns(routes: Routes, demand: Demand, *, launch_ns: float = 0.0) -> float:
    """The largest, over blocks that move anything, of the least latency from where it starts to where it must end.

    Args:
        routes: among the ranks, helpers last.
        demand: what must be delivered.
        launch_ns: added to every hop, for the rounds model.
    """
    kinds = kinds_for(routes, demand)
    if kinds is not None:
        return by_orbit.farthest(kinds, kinds.latency_ns + launch_ns, demand)
    hops = routes.latency_ns + launch_ns
    np.fill_diagonal(hops, 0.0)
    distance = shortest_paths(hops)[: demand.ranks, : demand.ranks]
    blocks = demand.blocks
    moving = blocks.size > 0
    if demand.collective is Collective.ALLTOALL or demand.collective is Collective.SENDRECV:
        return float(distance[blocks.origin[moving], blocks.target[moving]].max(initial=0.0))
    rows = slice(None) if EVERY in blocks.origin else blocks.origin[moving]
    columns = slice(None) if EVERY in blocks.target else blocks.target[moving]
    return float(distance[rows][:, columns].max(initial=0.0)) if moving.any() else 0.0
