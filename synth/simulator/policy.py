"""Which ready plan to use for the traffic of this step: priced from the actual counts, in well under 100 microseconds.

A plan's time under the official cost model is linear in the bytes per pair up to a few maxima. So each plan is laid
over the topology once, its link loads are written as short sums of a few totals of the count matrix (what a rank sends
inside its node and outside, what it receives, what a node sends and receives), and a step only sums up.

Every rank that has the same counts gets the same answer: byte counts are integers, their totals are exact whatever
the order of adding, and what follows is plain arithmetic in a fixed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.collective import Collective, Demand
from synth.errors import LimitError, PlanError
from synth.plan import Plan
from synth.simulator.loads import Loads
from synth.topology import Routes, Topology

MOST_RANKS = 128
"""Preparing a plan takes memory of links x rounds x ranks squared."""
MOST_TERMS = 4
"""A link's load is written as a sum of at most so many totals; links that need more are summed pair by pair."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the policy answers.

    Attributes:
        name: of the plan.
        plan: position among the policy's plans.
        seconds: predicted time of every plan.
    """

    name: str
    plan: int
    seconds: tuple[float, ...]


class Policy:
    """Ready plans for one group, and which of them to use.

    Args:
        plans: alltoall plans over the same ranks, by name; the first of equally good ones is taken.
        topology: where they run.
        launch_ns: cost of starting one round.

    Raises:
        PlanError: a plan is no alltoall, or has other ranks than the first.
        LimitError: more than ``MOST_RANKS`` ranks.
    """

    def __init__(self, plans: dict[str, Plan], topology: Topology, *, launch_ns: float = 0.0) -> None:
        if not plans:
            raise PlanError("policy: has no plan to choose from; give at least one")
        first = next(iter(plans.values()))
        for name, plan in plans.items():
            if plan.collective is not Collective.ALLTOALL or plan.ranks != first.ranks or plan.helpers:
                raise PlanError(
                    f"plan {name}: must be an alltoall over the same ranks as the others, without helpers", subject=name
                )
        if len(first.ranks) > MOST_RANKS:
            raise LimitError(f"policy: {len(first.ranks)} ranks; at most {MOST_RANKS} are priced", subject="ranks")
        self.names = tuple(plans)
        self.ranks = len(first.ranks)
        routes = Routes.among(topology, first.ranks)
        self._totals = _Totals([topology.device(device).node for device in first.ranks])
        self._prices = [_Price(plan, routes, self._totals, launch_ns) for plan in plans.values()]
        self._begin = np.cumsum([0, *(len(price.terms) for price in self._prices)]).tolist()
        self._terms = np.ascontiguousarray(np.concatenate([price.terms for price in self._prices]).T)
        self._factors = np.ascontiguousarray(np.concatenate([price.factors for price in self._prices]).T)

    def seconds(self, counts: np.ndarray) -> tuple[float, ...]:
        """Predicted time of every plan.

        Args:
            counts: [ranks, ranks] bytes from row to column, whole numbers.
        """
        totals = self._totals(counts)
        parts = totals.take(self._terms)
        parts *= self._factors
        load = parts[0]
        for term in range(1, MOST_TERMS):  # a fixed order of adding, the same on every machine
            load = load + parts[term]
        return tuple(
            price.seconds(load[self._begin[number] : self._begin[number + 1]], counts)
            for number, price in enumerate(self._prices)
        )

    def choose(self, counts: np.ndarray) -> Choice:
        """The fastest plan for these counts.

        Args:
            counts: [ranks, ranks] bytes from row to column, whole numbers.
        """
        seconds = self.seconds(counts)
        best = seconds.index(min(seconds))
        return Choice(self.names[best], best, seconds)


class _Totals:
    """Sums of a count matrix: per rank sent and received, inside and outside its node, and outside per node.

    Args:
        nodes: name of each rank's node.
    """

    def __init__(self, nodes: Sequence[str | None]) -> None:
        names = list(dict.fromkeys(nodes))
        self.ranks, self.nodes = len(nodes), len(names)
        node = np.array([names.index(name) for name in nodes])
        self._member = (node[:, None] == np.arange(self.nodes)).astype(np.float64)
        self._own = np.arange(self.ranks) * self.nodes + node
        self._alone = np.arange(self.ranks) * (self.ranks + 1)
        self.count = 4 * self.ranks + 2 * self.nodes + 1  # the last one is always zero

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        """[totals] sums; exact for whole numbers below 2^53."""
        matrix = np.array(counts, dtype=np.float64)
        matrix.ravel()[self._alone] = 0.0
        n, out = self.ranks, np.zeros(self.count)
        sent = matrix @ self._member
        received = matrix.T @ self._member
        out[:n] = sent.take(self._own)
        out[n : 2 * n] = sent.sum(axis=1) - out[:n]
        out[2 * n : 3 * n] = received.take(self._own)
        out[3 * n : 4 * n] = received.sum(axis=1) - out[2 * n : 3 * n]
        out[4 * n : 4 * n + self.nodes] = out[n : 2 * n] @ self._member
        out[4 * n + self.nodes : -1] = out[3 * n : 4 * n] @ self._member
        return out

    def basis(self) -> np.ndarray:
        """[totals, ranks^2] which pairs each total sums, the diagonal left out."""
        n = self.ranks
        same = (self._member @ self._member.T).astype(bool) & ~np.eye(n, dtype=bool)
        away = ~(self._member @ self._member.T).astype(bool)
        row = np.repeat(np.arange(n), n)
        column = np.tile(np.arange(n), n)
        parts = []
        for inside, axis in ((same, row), (away, row), (same, column), (away, column)):
            parts.append((axis == np.arange(n)[:, None]) & inside.ravel())
        for axis in (row, column):
            parts.append((self._member.T.astype(bool)[:, axis]) & away.ravel())
        return np.concatenate([*parts, np.zeros((1, n * n), dtype=bool)]).astype(np.float32)


class _Price:
    """One plan, prepared.

    Attributes:
        terms: [loads, MOST_TERMS] totals that make up each load.
        factors: [loads, MOST_TERMS] what each counts, in seconds per byte.
    """

    def __init__(self, plan: Plan, routes: Routes, totals: _Totals, launch_ns: float) -> None:
        loads = Loads.of(plan, routes.topology, _ones(plan), routes)
        whole = loads.plan
        begin = np.unique(whole.transfers.round)
        weights, link, stage = _weights(loads, begin)
        self.terms, self.factors, plain = _short_sums(weights, totals)
        self._plain = np.flatnonzero(plain)
        self._slow = weights[plain].astype(np.float64)
        self._stage, self._link = stage, link
        self._table = np.zeros((len(begin), int(link.max(initial=-1)) + 1))
        self._cells = stage * self._table.shape[1] + link
        self._spans = _spans(begin, whole.segments)
        worst = np.array([loads.routes.latency_ns.ravel()[loads.pair[whole.transfers.round == r]].max() for r in begin])
        self._fixed = sum(
            length * (launch_ns + float(worst[first:last].max())) * 1e-9 for first, last, length in self._spans
        )

    def seconds(self, load: np.ndarray, counts: np.ndarray) -> float:
        """Time under the rounds model; ``load`` holds seconds per link and stage."""
        if len(self._plain):
            load = load.copy()
            flat = np.asarray(counts, dtype=np.float64).ravel()
            load[self._plain] = [float(np.add.reduce(row * flat)) for row in self._slow]
        table = self._table
        table.ravel()[self._cells] = load
        if len(table) == 1:
            return float(table.max()) * self._spans[0][2] + self._fixed
        total = self._fixed
        for first, last, length in self._spans:
            busy = table[first]
            for stage in range(first + 1, last):
                busy = busy + table[stage]
            total += float(busy.max()) * length
        return total


def _ones(plan: Plan) -> Demand:
    count = len(plan.ranks)
    return Demand(collective=Collective.ALLTOALL, ranks=count, bytes=count, matrix=np.ones((count, count)))


def _spans(begin: np.ndarray, segments: int) -> list[tuple[int, int, int]]:
    """(first stage, last stage, rounds) of every span of rounds in which the same stages run."""
    edges = np.unique(np.concatenate([begin, begin + segments])).tolist()
    spans = []
    for low, high in itertools.pairwise(edges):
        running = np.flatnonzero((begin <= low) & (begin + segments >= high))
        if len(running):
            spans.append((int(running[0]), int(running[-1]) + 1, int(high - low)))
    return spans


def _weights(loads: Loads, begin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of one round per byte of each pair, for every stage and link, without links that never matter.

    Returns:
        (weights [rows, ranks^2], link of each row, stage of each row).
    """
    whole, routes = loads.plan, loads.routes
    ranks = len(whole.ranks)
    pair = (whole.chunks.origin * ranks + whole.chunks.target)[whole.transfers.chunk]
    stage = np.searchsorted(begin, whole.transfers.round)
    rows, links = routes.incidence(loads.pair)
    used, link = np.unique(links, return_inverse=True)
    seconds = loads.segment_bytes[rows] / routes.topology.bytes_per_s[links]
    table = np.zeros((len(used), len(begin), ranks * ranks), dtype=np.float32)
    np.add.at(table, (link, stage[rows], pair[rows]), seconds)
    flat = table.reshape(len(used), -1)
    kept = np.sort(np.unique(np.round(flat / max(flat.max(), 1e-30), 6), axis=0, return_index=True)[1])
    table = table[kept]
    link, stage = np.nonzero(table.any(axis=2))
    return table[link, stage], link, stage


def _short_sums(weights: np.ndarray, totals: _Totals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write every row as a sum of few totals, by orthogonal matching pursuit (Pati, Rezaiifar, Krishnaprasad, 1993).

    Returns:
        (terms, factors, rows that could not be written so), [rows, MOST_TERMS] twice and [rows] bool.
    """
    basis = totals.basis()
    norm = np.sqrt(basis.sum(axis=1))
    rows = len(weights)
    terms = np.full((rows, MOST_TERMS), totals.count - 1)
    factors = np.zeros((rows, MOST_TERMS))
    scale = np.abs(weights).max(axis=1, initial=0.0)
    residual = weights.copy()
    open_ = np.arange(rows)
    for term in range(MOST_TERMS):
        if not len(open_):
            break
        match = np.abs(residual[open_] @ basis.T) / np.maximum(norm, 1.0)
        terms[open_, term] = match.argmax(axis=1)
        still = []
        for row in open_.tolist():
            chosen = basis[terms[row, : term + 1]].astype(np.float64)
            exact = weights[row].astype(np.float64)
            solved = np.linalg.lstsq(chosen @ chosen.T, chosen @ exact, rcond=None)[0]
            residual[row] = exact - solved @ chosen
            factors[row, : term + 1] = solved
            if np.abs(residual[row]).max() > 1e-5 * scale[row]:
                still.append(row)
        open_ = np.array(still, dtype=np.int64)
    plain = np.zeros(rows, dtype=bool)
    plain[open_] = True
    factors[plain] = 0.0
    return terms, factors, plain
