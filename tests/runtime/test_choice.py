"""Which schedule runs: trials decided alike on all ranks, and alltoallv priced per call."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from runtime import choice
from runtime.attach import attach
from runtime.choice import hold_trial
from runtime.direct import direct_plan
from runtime.pricing import Pricing, agree_on_choice
from runtime.runner import Runner
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InputError
from synth.topology import catalog

spread = pytest.importorskip("solver.schedule.spread")


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("SYNTH_PLAN_FILE", "SYNTH_SERVER", "SYNTH_TOPOLOGY", "SYNTH_FALLBACK", "SYNTH_CACHE", "SYNTH_TRIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYNTH_QUIET", "1")


@pytest.fixture
def plan_file(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    plan = direct_plan(Collective.ALLTOALL, 3).with_(solver={"seed": 5})
    plans.save(plan, path)
    monkeypatch.setenv("SYNTH_PLAN_FILE", str(path))
    return f"plan {plan.digest[:12]}"


def test_the_slowest_rank_decides_and_all_decide_alike(in_threads):
    """Each rank alone would choose otherwise."""

    def rank(communicator):
        def pause(*by_rank):
            time.sleep(by_rank[communicator.rank])
            return True

        candidates = {
            "native": lambda: False,
            "direct": lambda: pause(0.0, 0.2),
            "plan x": lambda: pause(0.03, 0.03),
        }
        return hold_trial(communicator, "alltoall", 64, candidates)

    first, second = in_threads(2, rank)
    assert first == second
    assert first.order == ("plan x", "direct")  # what cannot be carried out is no candidate
    assert first.reason.startswith("trial at 64 B: direct ")
    assert first.reason.endswith("plan x is used")


@pytest.mark.parametrize(("budget", "runs"), [(0.0, 1), (60.0, choice.REPEATS + 1)])
def test_a_trial_is_bounded(in_threads, monkeypatch, budget, runs):
    monkeypatch.setattr(choice, "BUDGET_SECONDS", budget)

    def rank(communicator):
        ran = []
        candidates = {name: lambda name=name: not ran.append(name) for name in ("native", "direct", "plan x")}
        hold_trial(communicator, "alltoall", 64, candidates)
        return [ran.count(name) for name in candidates]

    assert in_threads(2, rank) == [[runs] * 3] * 2


@pytest.mark.parametrize("slow", ["plan", "direct"])
def test_the_first_call_at_a_size_tries_and_every_repetition_is_right(in_threads, monkeypatch, plan_file, slow):
    seen = []
    follow = Runner._follow

    def watched(self, schedules, prepared, program, call, marks):
        call.target[:] = 0xA5
        time.sleep(0.02 * prepared.name.startswith(slow))
        result = follow(self, schedules, prepared, program, call, marks)
        seen.append((self._communicator.rank, call.target.copy()))
        return result

    monkeypatch.setattr(Runner, "_follow", watched)

    def rank(communicator):
        ep = attach(communicator=communicator)
        send = np.arange(12, dtype=np.uint8) + 50 * ep.rank
        first, _ = ep.all_to_all(send)
        for _ in range(2):
            np.testing.assert_array_equal(ep.all_to_all(send)[0], first)
        trials = len(ep.stats().trials)
        ep.all_to_all(np.ones(300, dtype=np.uint8))
        return first, trials, ep.stats()

    results = in_threads(3, rank)
    fast = "direct" if slow == "plan" else plan_file
    for number, (first, trials, stats) in enumerate(results):
        wanted = np.concatenate([np.arange(4) + 4 * number + 50 * origin for origin in range(3)])
        np.testing.assert_array_equal(first, wanted)
        assert all(np.array_equal(kept, wanted) for rank, kept in seen if rank == number and len(kept) == 12)
        assert (trials, len(stats.trials)) == (1, 2)
        assert [trial.used for trial in stats.trials] == [fast, fast]
        assert set(stats.trials[0].seconds) == {"direct", plan_file}
        assert {key: entry.calls for key, entry in stats.operations.items()} == {("alltoall", fast): 4}
        assert stats.trials[0].reason in stats.text()
        assert f'synth_trial_seconds{{operation="alltoall",bytes="12",schedule="{plan_file}"' in stats.prometheus()
    assert len(seen) > 3 * 4


def test_switched_off_the_plan_is_used_untried(in_threads, monkeypatch, plan_file):
    monkeypatch.setenv("SYNTH_TRIAL", "off")

    def rank(communicator):
        ep = attach(communicator=communicator)
        ep.all_to_all(np.ones(12, dtype=np.uint8))
        return ep.stats().trials, list(ep.stats().operations)

    assert in_threads(3, rank) == [([], [("alltoall", plan_file)])] * 3


def test_nothing_is_tried_while_a_graph_is_recorded(in_threads, plan_file):
    def rank(communicator):
        communicator.memory.stream = SimpleNamespace(is_capturing=lambda: True)
        ep = attach(communicator=communicator)
        ep.all_to_all(np.ones(12, dtype=np.uint8))
        untried = list(ep.stats().trials), list(ep.stats().operations)
        communicator.memory.stream.is_capturing = lambda: False
        ep.all_to_all(np.ones(12, dtype=np.uint8))
        return *untried, len(ep.stats().trials)

    assert in_threads(3, rank) == [([], [("alltoall", plan_file)], 1)] * 3


def test_a_switch_that_is_not_known(monkeypatch):
    for name, right in (("SYNTH_TRIAL", "auto or off"), ("SYNTH_TELEMETRY", "off or on")):
        monkeypatch.setenv(name, "maybe")
        with pytest.raises(InputError, match=f"{name}: 'maybe' is not known; must be {right}"):
            attach(rank=0, size=1)
        monkeypatch.delenv(name)


MACHINE = catalog.build("hgx-h100x2")


def ready_plans():
    """A direct and a spread plan of two nodes."""
    direct = direct_plan(Collective.ALLTOALL, 16).with_(ranks=MACHINE.gpus, topology=MACHINE.fingerprint)
    draft = spread.draft(MACHINE, MACHINE.gpus)
    chunks = {"chunks": draft.chunks, "transfers": draft.transfers, "denominator": draft.denominator}
    return direct, direct.with_(**chunks, solver={"strategy": "spread"})


def counts_of(hot):
    """Rows of 1 KiB: few everywhere, and one rank with many for the other node."""
    counts = np.ones((16, 16), dtype=np.int64)
    counts[3, 8:] += hot
    return counts


def test_prices_follow_the_counts():
    direct, spreading = ready_plans()
    pricing = Pricing([spreading], direct, MACHINE)
    assert pricing.direct == 1
    assert [pricing.cheapest(1024 * counts_of(hot), (0, 1)) for hot in (0, 2000)] == [1, 0]
    assert pricing.identity() == Pricing([spreading], direct, MACHINE).identity()
    assert pricing.identity() != Pricing([direct], direct, MACHINE).identity()


def test_prices_and_trials_need_all_ranks(in_threads):
    direct, spreading = ready_plans()
    prices = [Pricing([spreading], direct, MACHINE), Pricing([direct, spreading], direct, MACHINE)]

    def rank(communicator):
        own = prices[communicator.rank]
        answers = [agree_on_choice(communicator, True, prices[0]), agree_on_choice(communicator, True, own)]
        return [*answers, agree_on_choice(communicator, communicator.rank == 0, None)]

    assert in_threads(2, rank) == [[(True, prices[0]), (True, None), (False, None)]] * 2


@pytest.mark.parametrize("trial", ["off", "auto"])
def test_each_alltoallv_takes_the_cheapest_plan(in_threads, tmp_path, monkeypatch, trial):
    """Off: among the plan files. Auto: among them and the direct exchange; whatever wins the trial, data is right."""
    made = ready_plans()
    for number, plan in enumerate(made):
        plans.save(plan, tmp_path / f"{number}.json")
    monkeypatch.setenv("SYNTH_PLAN_FILE", f"{tmp_path}/0.json:{tmp_path}/1.json")
    monkeypatch.setenv("SYNTH_TOPOLOGY", "hgx-h100x2")
    monkeypatch.setenv("SYNTH_TRIAL", trial)
    monkeypatch.setattr(choice, "BUDGET_SECONDS", 0.0)

    def rank(communicator):
        ep = attach(communicator=communicator)
        for hot in (0, 1500, 0):
            counts = counts_of(hot)
            send = np.full((int(counts[ep.rank].sum()), 1024), ep.rank, dtype=np.uint8)
            recv, _ = ep.all_to_all(send, counts[ep.rank])
            np.testing.assert_array_equal(recv[:, 0], np.repeat(np.arange(16), counts[:, ep.rank]))
        tried = [list(verdict.seconds)[-1] for verdict in ep.stats().trials]
        ran = {name: entry.calls for (_, name), entry in ep.stats().operations.items()}
        return tried, ran, ep.stats().fallbacks

    results = in_threads(16, rank)
    names = [f"plan {plan.digest[:12]}" for plan in made]
    assert all(result == results[0] for result in results), results
    if trial == "off":
        assert results[0] == ([], {names[0]: 2, names[1]: 1}, 0)
    else:
        assert results[0][0] == names  # one trial per plan: the first of equally cheap ones is the plan
