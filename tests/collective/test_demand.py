import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.collective import Collective, Demand, matrix_from_document, parse_collective
from synth.collective.cheapest import cheapest_deliveries, min_arborescence, shortest_paths
from synth.errors import DemandError, InputError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"collective": "alltoall", "ranks": 1}, "at least 2 ranks"),
        ({"collective": "alltoall", "ranks": 4, "bytes": -1}, "bytes is -1"),
        ({"collective": "broadcast", "ranks": 4}, "root from 0 to 3"),
        ({"collective": "broadcast", "ranks": 4, "root": 4}, "root from 0 to 3"),
        ({"collective": "alltoall", "ranks": 4, "root": 0}, "has no root"),
        ({"collective": "allgather", "ranks": 2, "matrix": np.ones((2, 2))}, "alltoall only"),
        ({"collective": "alltoall", "ranks": 3, "matrix": np.ones((2, 2))}, "3 ranks need 3 x 3"),
        ({"collective": "alltoall", "ranks": 2, "matrix": np.full((2, 2), np.nan)}, "unusable"),
        ({"collective": "sendrecv", "ranks": 2}, "at least one"),
        ({"collective": "alltoall", "ranks": 2, "pairs": ((0, 1),)}, "sendrecv and only"),
        ({"collective": "sendrecv", "ranks": 2, "pairs": ((1, 1),)}, "two different ranks"),
        ({"collective": "sendrecv", "ranks": 2, "pairs": ((0, 1), (0, 1))}, "listed twice"),
    ],
)
def test_what_makes_no_sense_is_named(arguments: dict[str, object], message: str) -> None:
    given_ = {"bytes": 8} | arguments | {"collective": Collective(arguments["collective"])}
    with pytest.raises(DemandError, match=message):
        Demand(**given_)  # type: ignore[arg-type]


def test_unknown_collectives_are_listed() -> None:
    with pytest.raises(DemandError, match="alltoall, allgather"):
        parse_collective("all2all")


@pytest.mark.parametrize("document", [{"bytes": [[1, 2]]}, {"bytes": [[0, "1"], [1, 0]]}, {"bytes": 3}, [], {}])
def test_demand_files_that_are_none(document: object) -> None:
    with pytest.raises(InputError):
        matrix_from_document(document)


def test_sizes_of_blocks() -> None:
    assert Demand(collective=Collective.ALLTOALL, ranks=4, bytes=8).blocks.size.tolist() == [2.0] * 12
    assert Demand(collective=Collective.ALLREDUCE, ranks=4, bytes=8).blocks.size.tolist() == [8.0]
    assert Demand(collective=Collective.ALLGATHER, ranks=4, bytes=8).blocks.size.tolist() == [2.0] * 4


def cheapest_tree(weights: np.ndarray, root: int) -> float:
    """Every choice of one parent per rank that reaches the root."""
    count = len(weights)
    others = [rank for rank in range(count) if rank != root]
    best = np.inf
    for parents in itertools.product(range(count), repeat=len(others)):
        chosen = dict(zip(others, parents, strict=True))
        price = sum(weights[p, r] if p != r else np.inf for r, p in chosen.items())
        if price < best and all(_reaches(chosen, rank, root) for rank in others):
            best = price
    return float(best)


def _reaches(parents: dict[int, int], rank: int, root: int) -> bool:
    seen = set()
    while rank != root and rank not in seen:
        seen.add(rank)
        rank = parents[rank]
    return rank == root


def weights_of(data: st.DataObject) -> np.ndarray:
    count = data.draw(st.integers(2, 5))
    prices = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, np.inf]), min_size=count**2, max_size=count**2))
    weights = np.array(prices, dtype=float).reshape(count, count)
    np.fill_diagonal(weights, 0)
    return weights


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_arborescences_equal_brute_force(data: st.DataObject) -> None:
    weights = weights_of(data)
    root = data.draw(st.integers(0, len(weights) - 1))
    price, parents = min_arborescence(weights, root)
    assert price == cheapest_tree(weights, root)
    if np.isfinite(price):
        chosen = {r: int(p) for r, p in enumerate(parents) if r != root}
        assert sum(weights[p, r] for r, p in chosen.items()) == price
        assert all(_reaches(chosen, rank, root) for rank in chosen)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_helpers_never_raise_a_price(data: st.DataObject) -> None:
    """With a helper the stated price is at most the cheapest tree that may or may not use it."""
    weights = weights_of(data)
    count = len(weights)
    if count < 3:
        return
    demand = Demand(collective=Collective.ALLGATHER, ranks=count - 1, bytes=8)
    prices = cheapest_deliveries(weights, demand)
    for origin in range(count - 1):
        without = min_arborescence(weights[: count - 1, : count - 1], origin)[0]
        using = min_arborescence(weights, origin)[0]
        assert prices[origin] <= min(without, using)


def test_shortest_paths_by_hand() -> None:
    weights = np.array([[0, 1, 9], [np.inf, 0, 1], [1, np.inf, 0]])
    assert shortest_paths(weights).tolist() == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
