"""Placement against EPLB on the reference loads: ``python -m tests.bench.placement``; nothing here is asserted.

Times are CPU seconds of one call over 58 layers with one thread; the published column is EPLB's own implementation, as
measured for the reference figures. Run with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import time

import numpy as np

from solver.placement.balance import balance
from solver.placement.bound import rank_load_bound
from solver.placement.eplb import eplb
from solver.placement.place import place
from solver.placement.problem import Placement, Shape
from solver.placement.traffic import Traffic, nodes_per_token
from synth.testing.expert_loads import KINDS, expert_loads
from synth.testing.routing import loads_of, planted_routing, together_of

SHAPES = {
    "256e_288r_8g_4n_32G": (Shape(experts=256, slots=288, ranks=32, nodes=4, groups=8), (0.2431, 0.2374, 0.2480)),
    "256e_288r_global_32G": (Shape(experts=256, slots=288, ranks=32), (0.6225, 0.6110, 0.6194)),
    "64e_80r_8g_4n_16G": (Shape(experts=64, slots=80, ranks=16, nodes=4, groups=8), (0.0570, 0.0556, 0.0568)),
    "256e_320r_8g_8n_64G": (Shape(experts=256, slots=320, ranks=64, nodes=8, groups=8), (0.2731, 0.2621, 0.2675)),
    "256e_512r_global_128G": (Shape(experts=256, slots=512, ranks=128), (3.4481, 3.5034, 3.3860)),
}


def balance_table() -> None:
    """Highest over mean rank load, means over 58 layers and five seeds, and times."""
    print("| config | load | EPLB | here | worst layer | bound | EPLB published s | EPLB here s | here s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (shape, published) in SHAPES.items():
        for kind, stated in zip(KINDS, published, strict=True):
            theirs, ours, bounds, times = [], [], [], []
            for seed in range(5):
                loads = expert_loads(kind, 58, shape.experts, seed)
                begin = time.process_time()
                baseline = eplb(loads, shape.slots, shape.groups, shape.nodes, shape.ranks)
                middle = time.process_time()
                placed = balance(loads, shape)
                times.append((middle - begin, time.process_time() - middle))
                theirs.append(Placement(shape, baseline).max_over_mean(loads))
                ours.append(Placement(shape, placed).max_over_mean(loads))
                bounds.append(rank_load_bound(loads, shape) / (loads.sum(axis=1) / shape.ranks))
            assert (np.array(ours) <= np.array(theirs)).all()
            first, second = np.median(times, axis=0)
            print(
                f"| {name} | {kind} | {np.mean(theirs):.4f} | {np.mean(ours):.4f} | {np.max(ours):.4f} | "
                f"{np.mean(bounds):.4f} | {stated:.3f} | {first:.3f} | {second:.3f} |",
                flush=True,
            )


def previous_table() -> None:
    """Loads drift by a lognormal factor; the previous placement was made for the loads before."""
    print("\n| config | drift | before | after | anew | moves per layer | moves anew | layers kept | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in ("256e_288r_8g_4n_32G", "256e_288r_global_32G"):
        shape = SHAPES[name][0]
        loads = expert_loads("zipf1.2", 58, shape.experts, 0).astype(np.float64)
        previous = place(loads, shape).placement.phy2log
        for drift in (0.01, 0.1, 0.5):
            now = np.floor(loads * np.random.default_rng(1).lognormal(0, drift, loads.shape))
            begin = time.process_time()
            moved = place(now, shape, previous=previous)
            seconds = time.process_time() - begin
            anew = place(now, shape, previous=previous, slack=0.0, min_gain=0.0)
            print(
                f"| {name} | {drift:g} | {Placement(shape, previous).max_over_mean(now).mean():.4f} | "
                f"{moved.placement.max_over_mean(now).mean():.4f} | {anew.placement.max_over_mean(now).mean():.4f} | "
                f"{moved.moves.mean():.1f} | {anew.moves.mean():.1f} | {int(moved.kept.sum())} | {seconds:.2f} |",
                flush=True,
            )


def coactivation_table() -> None:
    """Planted topics: nodes a token is sent to (4 nodes, top-8), and highest over mean rank load."""
    shape = Shape(experts=256, slots=288, ranks=32, nodes=4)
    print("\n| topics | map | highest / mean | nodes per token | on fresh tokens |")
    print("|---|---|---|---|---|")
    for topics in (8, 16, 32):
        choices = planted_routing(256, topics, 40_000, 8, seed=0)
        seen, fresh = choices[:20_000], choices[20_000:]
        loads, together = loads_of(seen, 256)[None], together_of(seen, 256)[None]
        ours = place(loads, shape, traffic=Traffic(together=together)).placement
        random = ours.phy2log[:, np.random.default_rng(0).permutation(288)]
        maps = {
            "random": random,
            "EPLB, 8 groups": eplb(loads, 288, 8, 4, 32),
            "EPLB, global": eplb(loads, 288, 1, 1, 32),
            "here": ours.phy2log,
        }
        for name, table in maps.items():
            made = Placement(shape, table)
            print(
                f"| {topics} | {name} | {made.max_over_mean(loads)[0]:.4f} | {nodes_per_token(made, seen):.3f} | "
                f"{nodes_per_token(made, fresh):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    balance_table()
    previous_table()
    coactivation_table()
