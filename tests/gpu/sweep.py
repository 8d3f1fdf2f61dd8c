"""Other shapes of the fused kernels, each beside a plain copy in the same run: ``python -m tests.gpu.sweep [OUT]``.

Every shape moves the same bytes as its plain copy, on data that rotates and so never lies in the cache. Prints the
ratio of each at 64 MiB, then of the best ones at 256 MiB, and writes all to OUT/sweep.json as it goes.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path

import cupy

from runtime.cuda.kernels import COPY_SHAPE, SUM_SHAPE, copy_kernel, sum_kernel
from runtime.cuda.memory import CudaMemory
from runtime.elements import Reduction
from tests.gpu.kernels import COPY_CASES, SUM_CASES, Bench

LIMIT_SECONDS = 40.0


def shapes(base):
    """The shape in use, and those that differ from it in a way that could matter."""
    layouts = [(256, 4), (256, 2), (256, 3), (256, 6), (256, 8), (512, 2), (512, 1), (512, 4), (128, 8), (1024, 1)]
    changes = [{"threads": threads, "blocks": blocks, "unroll": unroll}
               for threads, blocks in layouts for unroll in (1, 2, 4, 8)
               if 24 <= threads * blocks * unroll // 64 <= 96]  # fmt: skip
    found = [base, *(replace(base, **change) for change in changes)]
    for shape in list(found[:6]):
        found += [replace(shape, tile=8192), replace(shape, tile=32768), replace(shape, near=10**6)]
        found += [replace(shape, near=0), replace(shape, counted=0)]
    found += [
        replace(base, load=load, store=store) for load in ("plain", "nc", "cs") for store in ("plain", "cs", "cg")
    ]
    return list(dict.fromkeys(found))


def short(shape):
    """What a shape is, in a few letters."""
    values = asdict(shape)
    return " ".join(f"{name}={values[name]}" for name in values)


def main(out=None):
    began, results = time.monotonic(), []
    kinds = [("copies", COPY_SHAPE, COPY_CASES), ("sums", SUM_SHAPE, SUM_CASES)]

    def compile(kind, shape):
        try:
            if kind == "copies":
                copy_kernel(shape).compile()
            else:
                for name in ("float32", "bfloat16"):
                    sum_kernel(name, Reduction.SUM, shape).compile()
        except Exception as error:  # a shape that does not fit the chip
            print("   does not compile:", short(shape), str(error)[-200:], flush=True)

    pool = ThreadPoolExecutor(16)
    ready = {
        (kind, shape): pool.submit(compile, kind, shape)
        for both in zip(shapes(COPY_SHAPE), shapes(SUM_SHAPE), strict=True)
        for kind, shape in zip(("copies", "sums"), both, strict=True)
    }
    wait(ready.values(), timeout=LIMIT_SECONDS * 0.6)
    pool.shutdown(wait=False, cancel_futures=True)
    compiled = {key for key, future in ready.items() if future.done() and not future.cancelled()}
    print(f"   {len(compiled)} of {len(ready)} compiled after {time.monotonic() - began:.1f} s", flush=True)

    def measured(kind, cases, shape, bench):
        sort = "copying" if kind == "copies" else "adding"
        memory = CudaMemory(0, **{sort: shape})
        memory.stream = cupy.cuda.get_current_stream()
        try:
            run = getattr(bench, kind)
            ratios = {what: round(run(memory, **case)[1], 3) for what, case in cases.items()}
        except Exception as error:
            print("   failed:", short(shape), str(error)[-200:], flush=True)
            return
        results.append({"kind": kind, "mib": bench.n // 2**20, "shape": asdict(shape), "ratios": ratios})
        if out:
            (Path(out) / "sweep.json").write_text(json.dumps(results))

    small = Bench(64)
    for kind, base, cases in kinds:
        until = time.monotonic() + LIMIT_SECONDS * 0.15
        for shape in shapes(base):
            if (kind, shape) in compiled and time.monotonic() < until:
                measured(kind, cases, shape, small)
    del small
    large = Bench(256)
    for kind, base, cases in kinds:
        ranked = sorted((r for r in results if r["kind"] == kind and r["mib"] == 64),
                        key=lambda row: -min(row["ratios"].values()))  # fmt: skip
        best = [type(base)(**row["shape"]) for row in ranked[:4]]
        for shape in dict.fromkeys([base, *best]):
            measured(kind, cases, shape, large)
        rows = [row for row in results if row["kind"] == kind]
        for row in [
            *[r for r in rows if r["mib"] == 256],
            *ranked[:6],
            *[r for r in rows if r["shape"] == asdict(base)],
        ]:
            values = " ".join(f"{value:.2f}" for value in row["ratios"].values())
            print(f"   {kind} {row['mib']:>4} MiB  {values}  {short(type(base)(**row['shape']))}", flush=True)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:])
