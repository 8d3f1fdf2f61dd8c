"""Dispatch and combine: equal to the dense computation, gradients too, and each token crosses to a node once."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.attach import attach
from synth.errors import InvalidArgument
from tests.pytorch.conftest import ROOT, start
from tests.runtime.conftest import in_threads

torch = pytest.importorskip("torch", reason="torch is not installed")

from runtime.pytorch.moe import MoELayer, combine, dispatch  # noqa: E402
from tests.pytorch.experts import DIM, NODES, PER_RANK, K, dense, layer, routing  # noqa: E402

__all__ = ["in_threads"]  # a fixture


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_RANKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")


@pytest.mark.parametrize("machine", NODES)
@pytest.mark.parametrize("two_level", [None, False, True])
def test_outputs_and_gradients_equal_the_dense_computation(in_threads, machine, two_level):
    devices = NODES[machine]

    def rank(communicator):
        tokens = 5 * communicator.rank  # rank 0 has none
        with attach(communicator=communicator, topology="hgx-h100x4", ranks=devices) as ep:
            found = layer(ep, tokens, torch.float32, two_level)
        for one, other in zip(found[:3], dense(ep.size, ep.rank, tokens, torch.float32), strict=True):
            torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-4)
        return found[4]

    hops = {"4x2": 2, "uneven": 2, "one-node": 1, "one-each": 1}[machine] if two_level is None else 1 + two_level
    assert in_threads(len(devices), rank) == [hops] * len(devices)


def test_half_types_are_added_in_float32(in_threads):
    def rank(communicator):
        with attach(communicator=communicator, topology="hgx-h100x4", ranks=NODES["4x2"]) as ep:
            found = layer(ep, 40, torch.bfloat16, None)
        out = dense(ep.size, ep.rank, 40, torch.bfloat16)[0]
        assert found[0].dtype == torch.bfloat16
        return float((found[0].double() - out).abs().max() / out.abs().max())

    assert max(in_threads(8, rank)) < 0.02  # bfloat16 keeps 8 bits; rounded once per level


def test_each_token_crosses_to_a_node_once(in_threads):
    """Top-8 of 32 experts over 4 nodes: bytes between nodes, counted where messages are sent."""
    tokens, devices = 64, NODES["4x2"]

    def crossing(two_level):
        def rank(communicator):
            with attach(communicator=communicator, topology="hgx-h100x4", ranks=devices) as ep:
                moved = layer(ep, tokens, torch.float32, two_level)[3]
                assert ep.nodes == (0, 0, 1, 1, 2, 2, 3, 3)
                return sum(bytes for peer, bytes in moved.items() if ep.nodes[peer] != ep.nodes[ep.rank])

        return sum(in_threads(len(devices), rank))

    to_nodes = to_ranks = pairs = 0
    for rank in range(8):
        _, indices, _ = routing(8, rank, tokens, torch.float32)
        owner = np.where(indices >= 0, indices // PER_RANK, rank)
        away = owner // 2 != rank // 2
        pairs += int(away.sum())
        to_ranks += sum(len(set(row[far])) for row, far in zip(owner, away, strict=True))
        to_nodes += sum(len(set(row[far] // 2)) for row, far in zip(owner, away, strict=True))
    there_and_back = 2 * DIM * 4 + K * (4 + 4)  # the token, its sum, its choices and its weights
    once, per_rank = crossing(True), crossing(False)
    assert once == to_nodes * there_and_back
    assert per_rank == to_ranks * there_and_back
    assert to_nodes < 0.7 * to_ranks < 0.7 * pairs


def test_a_layer_that_trains(in_threads):
    def rank(communicator):
        torch.manual_seed(communicator.rank)
        with attach(communicator=communicator, topology="hgx-h100x4", ranks=NODES["4x2"]) as ep:
            experts = [torch.nn.Linear(DIM, DIM) for _ in range(2)]
            model = MoELayer(ep, DIM, experts, top_k=4)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            x, losses = torch.randn(32, DIM), []
            for _ in range(15):
                optimizer.zero_grad()
                loss = (model(x) - torch.sin(x)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    for losses in in_threads(8, rank):
        assert losses[-1] < 0.7 * losses[0]


def test_arguments_that_do_not_fit(in_threads):
    def rank(communicator):
        with attach(communicator=communicator) as ep:
            assert ep.nodes == (0, 0)
            x, good = torch.zeros(3, DIM), torch.zeros(3, 2, dtype=torch.int64)
            for indices, what in ((good[:2], "has 2 rows, but x has 3 tokens"), (good + 8, "beyond the 8"),
                                  (good - 2, "beyond the 8")):  # fmt: skip
                with pytest.raises(InvalidArgument, match=what):
                    dispatch(ep, x, indices, 4)
            sent = dispatch(ep, x, good, 4)
            with pytest.raises(InvalidArgument, match="do not go with"):
                combine(ep, sent.rows, torch.zeros(2, 2), sent)

    assert in_threads(2, rank) == [None, None]


@pytest.mark.mpi
def test_the_same_over_mpi():
    program = Path(sys.executable).with_name("mpiexec")
    if not program.exists():
        pytest.skip("mpiexec of the mpich wheel is not installed beside this Python")
    command = [str(program), "-n", "4", sys.executable, "-m", "tests.pytorch.mpi_moe", "4"]
    output, status = start(command, 120, PYTHONPATH=str(ROOT), SYNTH_TRANSPORT="mpi", SYNTH_QUIET="1")
    assert status == 0, output[-3000:]
    said = re.search(r"hops 2, worst error (\S+)", output)
    assert said, output
    assert float(said[1]) < 1e-5
