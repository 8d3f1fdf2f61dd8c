"""Run under mpiexec: execute plans for every collective, size, type and uneven counts, and compare with numpy.

Arguments: plan files. Prints one line per plan from rank 0: ``ok <collective> <cases>``; anything else is a failure.
"""

import sys

import numpy as np

from runtime.communicators.base import Call
from runtime.communicators.mpi import MpiCommunicator
from runtime.elements import Element, Reduction
from runtime.executor import execute
from synth import plan as plans
from synth.collective import Collective
from synth.plan.lowering import Lowering
from tests.runtime.expected import case, draw_counts, uniform_counts

SIZES = (0, 1, 7, 4096, 1_000_003)
ELEMENTS = {"float32": Element("float32", 4), "bfloat16": Element("bfloat16", 2), "int8": Element("int8", 1)}


def drawer(name, reduces, rng):
    """Values whose sums are exact, so that every order of additions gives the same bits."""
    if name == "bfloat16":

        def draw(n):
            if not reduces:
                return rng.integers(0, 2**16, n).astype(np.uint16)
            return (rng.integers(0, 8, n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

        return draw
    if name == "float32":
        return lambda n: rng.integers(-1000, 1000, n).astype(np.float32)
    return lambda n: rng.integers(-128, 128, n).astype(np.int8)


def bf16_sum(arrays):
    wide = sum((a.astype(np.uint32) << 16).view(np.float32) for a in arrays)
    return (np.ascontiguousarray(wide).view(np.uint32) >> 16).astype(np.uint16)


def expected(plan, counts, name, seed):
    rng = np.random.default_rng(seed)
    draw = drawer(name, plan.collective.reduces, rng)
    inputs, outputs = case(plan.collective, counts, plan.members, len(plan.ranks), plan.root, draw)
    if name == "bfloat16" and plan.collective.reduces:
        whole = bf16_sum(inputs)
        match plan.collective:
            case Collective.REDUCE_SCATTER:
                outputs = np.split(whole, np.cumsum(counts)[:-1])
            case Collective.ALLREDUCE:
                outputs = [whole] * len(inputs)
            case _:
                outputs = [whole if r == plan.root else whole[:0] for r in range(len(inputs))]
    return inputs, outputs


def main():
    communicator = MpiCommunicator(deadline=60)
    rank = communicator.rank
    for path in sys.argv[1:]:
        plan = plans.load(path)
        lowering = Lowering(plan, rank)
        pairs = list(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True))
        done = 0
        for name, element in ELEMENTS.items():
            kinds = [("even", size) for size in SIZES] + [("uneven", most) for most in (50, 30_000)]
            for seed, (kind, size) in enumerate(kinds):
                many = plan.collective in (Collective.ALLTOALL, Collective.ALLGATHER, Collective.REDUCE_SCATTER)
                each = -(-size // plan.members) if many and size > 4096 else size  # sizes of the whole buffer
                if kind == "even":
                    counts = np.asarray(uniform_counts(plan.collective, plan.members, each, pairs))
                else:
                    rng = np.random.default_rng(seed)
                    counts = np.asarray(draw_counts(plan.collective, plan.members, rng, size, pairs))
                inputs, outputs = expected(plan, counts, name, seed)
                target = np.full(outputs[rank].nbytes, 0xA5, dtype=np.uint8)
                source = inputs[rank].view(np.uint8)
                before = source.copy()
                program = lowering.program(counts, align=16 // element.itemsize)
                execute(communicator, program, source, target, element, Reduction.SUM)
                assert np.array_equal(target, outputs[rank].view(np.uint8)), (path, name, kind, size, rank)
                assert np.array_equal(source, before), "the input was written"
                target[:] = 0x5A
                root = plan.root or 0
                call = Call(plan.collective, counts, source, target, element, Reduction.SUM, root)
                if communicator.native(call):
                    assert np.array_equal(target, outputs[rank].view(np.uint8)), (path, "native", name, kind, rank)
                done += 1
        if rank == 0:
            print("ok", plan.collective.value, done, flush=True)
    communicator.close()


main()
