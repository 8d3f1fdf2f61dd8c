"""The GPU tests under pytest; each needs a GPU, CuPy and nccl4py, and says so where they are missing.

Eight ranks on fewer GPUs need NCCL 2.30 or newer; ``SYNTH_TEST_NCCL`` names another libnccl.so.2 to use, and
``SYNTH_TEST_PLANS`` a folder that ``tests.gpu.make_inputs`` wrote, where the solver is not installed.
"""

import os
from pathlib import Path

import pytest

from tests.gpu.ranks import gpu_reason, launch

REASON = gpu_reason()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(REASON is not None, reason=REASON or "")]


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory):
    if "SYNTH_TEST_PLANS" in os.environ:
        return Path(os.environ["SYNTH_TEST_PLANS"])
    pytest.importorskip("solver.portfolio")
    from tests.gpu.make_inputs import main

    folder = tmp_path_factory.mktemp("plans")
    main(folder)
    return folder


def started(size, *arguments, **options):
    statuses, answers, log = launch(size, *arguments, **options)
    assert all(status == 0 for status in statuses), log
    return answers


def test_fused_kernels_are_right():
    import numpy as np

    from runtime.cuda.memory import CudaMemory
    from tests.gpu.kernels import check_copies, check_sums

    memory = CudaMemory(0)
    assert check_copies(memory, np.random.default_rng(0))
    assert check_sums(memory, np.random.default_rng(0))


@pytest.mark.parametrize("transport", ["nccl", "nccl-cupy"])
def test_results_are_ordered_on_the_callers_stream(transport):
    answers = started(4, "order", transport=transport)
    assert all(row.get("wrong", 0) == 0 for rank in answers for row in rank)


def test_eight_ranks_execute_every_plan(plan_folder):
    answers = started(8, "plans", plan_folder)
    assert sum(row.get("wrong", 0) for rank in answers for row in rank) == 0


def test_the_group_on_cupy_arrays(plan_folder):
    started(8, "group", plan_folder)


@pytest.mark.parametrize("phase", ["fixed", "registered", "classes", "trial"])
def test_what_the_group_does_on_a_device(plan_folder, phase):
    started(8, phase, plan_folder)


@pytest.mark.parametrize("what", ["dies", "stalls", "before-connect", "in-capture"])
def test_a_lost_rank_is_named_and_the_others_go_on(what):
    _, answers, log = launch(4, "failure", what, timeout=60)
    survivors = [rank[0] for rank in answers[:-1] if rank]
    assert len(survivors) == 3, log
    assert all(answer["rank"] == 3 for answer in survivors)


def test_a_stuck_blocking_binding_ends_the_process_with_its_status():
    statuses, _, log = launch(3, "failure", "dies", transport="nccl-cupy", timeout=60)
    assert statuses[:2] == [76, 76], log


def test_a_layer_trains_as_the_dense_computation_does():
    pytest.importorskip("torch")
    answers = started(4, "torch")
    assert answers[0][0]["loss_last"] < answers[0][0]["loss_first"]


def test_expandable_segments_are_moved_eagerly_and_refused_in_graphs():
    pytest.importorskip("torch")
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert "virtual memory" in started(4, "segments", **segments)[0][0]["refused"]
    started(4, "graphs", NCCL_GRAPH_REGISTER="0", **segments)


def test_process_groups_and_two_level_experts():
    pytest.importorskip("torch")
    answers = started(8, "experts")
    assert answers[0][0]["nodes"] == [0, 0, 1, 1, 2, 2, 3, 3]
