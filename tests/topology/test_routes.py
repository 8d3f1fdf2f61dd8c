import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import TopologyError
from synth.topology import Device, DeviceKind, Link, LinkClass, Routes, Topology, catalog


def machine(kinds: str, links: list[tuple[int, int, int]]) -> Topology:
    """One letter per device (g, s), links as (src, dst, rate)."""
    kind = {"g": DeviceKind.GPU, "s": DeviceKind.SWITCH}
    devices = tuple(Device(id=f"n0/d{i}", kind=kind[letter], node="n0") for i, letter in enumerate(kinds))
    return Topology(
        name="made",
        devices=devices,
        links=tuple(
            Link(src=f"n0/d{a}", dst=f"n0/d{b}", link_class=LinkClass.PCIE, bytes_per_s=rate, latency_ns=10)
            for a, b, rate in links
        ),
    )


def ids(topology: Topology, path: np.ndarray) -> list[str]:
    return [topology.links[p].dst for p in path.tolist()]


def test_fewest_links_beat_wider_ones() -> None:
    made = machine("ggs", [(0, 1, 1), (0, 2, 100), (2, 1, 100)])
    assert ids(made, Routes.among(made).route(0, 1)) == ["n0/d1"]


def test_wider_beats_smaller_ids() -> None:
    made = machine("ggss", [(0, 2, 1), (2, 1, 1), (0, 3, 2), (3, 1, 2)])
    assert ids(made, Routes.among(made).route(0, 1)) == ["n0/d3", "n0/d1"]


def test_smaller_ids_decide_among_equally_wide_even_through_a_narrower_start() -> None:
    made = machine("ggss", [(0, 2, 5), (2, 1, 5), (0, 3, 9), (3, 1, 5)])
    assert ids(made, Routes.among(made).route(0, 1)) == ["n0/d2", "n0/d1"]


def test_no_route_through_a_gpu() -> None:
    made = machine("ggg", [(0, 1, 1), (1, 2, 1), (2, 0, 1)])
    routes = Routes.among(made)
    assert not routes.exists[0, 2]
    assert routes.exists[0, 1]
    assert np.isinf(routes.latency_ns[0, 2])
    routes.require_connected()


def test_the_wider_of_parallel_links_is_taken() -> None:
    made = machine("gg", [(0, 1, 1), (0, 1, 7), (1, 0, 1)])
    assert made.links[int(Routes.among(made).route(0, 1)[0])].bytes_per_s == 7


def test_disconnected_ranks_are_named() -> None:
    made = machine("ggg", [(0, 1, 1), (1, 0, 1), (2, 0, 1)])
    with pytest.raises(TopologyError, match="n0/d0 cannot reach n0/d2"):
        Routes.among(made).require_connected()


@pytest.mark.parametrize(("ranks", "message"), [(["n0/d9"], "no device"), (["n0/d0", "n0/d0"], "stands twice")])
def test_ranks_that_make_no_sense(ranks: list[str], message: str) -> None:
    made = machine("gg", [(0, 1, 1)])
    with pytest.raises(TopologyError, match=message):
        Routes.among(made, ranks)


def test_switches_are_no_ranks() -> None:
    with pytest.raises(TopologyError, match="ranks run on GPUs"):
        Routes.among(catalog.build("hgx-h100x1"), ["n0/nvswitch"])


def test_cross_node_route_of_a_rail_machine() -> None:
    made = catalog.build("hgx-h100x2")
    route = Routes.among(made).route(0, 9)
    assert ids(made, route) == ["n0/nic0", "fabric", "n1/nic1", "n1/gpu1"]


def brute_force(made: Topology, a: int, b: int) -> tuple[int, float, list[str]] | None:
    """Best (links, -width, ids) over all simple paths that avoid other GPUs."""
    best = None
    between = [i for i, d in enumerate(made.devices) if d.kind is not DeviceKind.GPU]
    widest: dict[tuple[int, int], float] = {}
    for link in made.links:
        key = made.index[link.src], made.index[link.dst]
        widest[key] = max(widest.get(key, 0.0), link.bytes_per_s)
    for count in range(len(between) + 1):
        for middle in itertools.permutations(between, count):
            hops = list(itertools.pairwise((a, *middle, b)))
            if all(hop in widest for hop in hops):
                key = (len(hops), -min(widest[hop] for hop in hops), [made.devices[j].id for _, j in hops])
                best = key if best is None else min(best, key)
    return best


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_routes_equal_brute_force(data: st.DataObject) -> None:
    kinds = data.draw(st.text("gs", min_size=2, max_size=6)) + "g"
    pairs = [(a, b) for a in range(len(kinds)) for b in range(len(kinds)) if a != b]
    links = data.draw(st.lists(st.tuples(st.sampled_from(pairs), st.integers(1, 3)), max_size=20))
    made = machine(kinds, [(a, b, rate) for (a, b), rate in links])
    routes = Routes.among(made)
    place = [made.index[id] for id in routes.devices]
    for x, y in itertools.permutations(range(routes.ranks), 2):
        best = brute_force(made, place[x], place[y])
        path = routes.route(x, y)
        if best is None:
            assert len(path) == 0
        else:
            width = min(made.links[p].bytes_per_s for p in path.tolist())
            assert (len(path), -width, ids(made, path)) == best


def test_hop_weights_and_incidence_agree_with_routes() -> None:
    made = catalog.build("hgx-h100x2")
    routes = Routes.among(made)
    lengths = np.random.default_rng(0).random(len(made.links))
    weights = routes.hop_weights(lengths)
    for a, b in [(0, 1), (0, 8), (3, 12)]:
        assert weights[a, b] == pytest.approx(lengths[routes.route(a, b)].sum())
    rows, links = routes.incidence(np.array([1, 9]))
    assert links[rows == 1].tolist() == routes.route(0, 9).tolist()
