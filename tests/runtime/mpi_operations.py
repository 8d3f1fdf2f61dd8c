"""Run under mpiexec: outputs over inputs and fixed capacity, by MPI's own collectives and by the direct exchange."""

import numpy as np

import synth
from runtime.schedules import Operation
from synth.collective import Collective

with synth.attach() as ep:
    rank, size = ep.rank, ep.size
    x = np.random.default_rng(rank).integers(0, 9, (3 * size, 2)).astype(np.float32)
    part = slice(3 * rank, 3 * rank + 3)
    for forced in ("native", "direct"):
        for collective in ("allreduce", "broadcast", "reduce_scatter", "allgather", "alltoall"):
            operation = Operation(Collective(collective), 1 if collective == "broadcast" else None)
            ep.schedules(operation).forced = forced if forced == "direct" else None
        apart = [
            ep.all_reduce(x),
            ep.broadcast(x, root=1),
            ep.reduce_scatter(x),
            ep.all_gather(x[part]),
            ep.all_to_all(x)[0],
        ]
        y = [x.copy() for _ in range(5)]
        over = [
            ep.all_reduce(y[0], out=y[0]),
            ep.broadcast(y[1], root=1, out=y[1]),
            ep.reduce_scatter(y[2], out=y[2][part]),
            ep.all_gather(y[3][part], out=y[3]),
            ep.all_to_all(y[4], out=y[4])[0],
        ]
        assert all(np.array_equal(a, b) for a, b in zip(apart, over, strict=True)), forced
        received = ep.all_to_all_fixed(x, np.full(size, 3), 2)
        assert received.counts.tolist() == [2] * size
        assert received.dropped.tolist() == [1] * size
        assert np.array_equal(received.rows[rank], x[part][:2])
    names = sorted({schedule for _, schedule in ep.stats().operations})
    print(f"right: {' '.join(names)}, {ep.dropped_rows()} dropped", flush=True)
