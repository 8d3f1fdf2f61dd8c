"""Other shapes of the fused kernels, each beside a plain copy in the same run: ``python -m tests.gpu.sweep [OUT]``.

Every shape moves the same bytes as its plain copy, on data that rotates and so never lies in the cache. Prints the
ratios of the best at 64 MiB and at 256 MiB, and writes all to OUT/sweep.json as it goes. Kernels come from the folder
``SYNTH_TEST_CUBINS`` where ``python -m tests.gpu.sweep --compile FOLDER`` left them, on a machine with nvcc; others are
compiled here, as long as there is time.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from runtime.cuda import kernels
from runtime.cuda.kernels import COPY_SHAPE, SUM_SHAPE
from runtime.elements import Reduction

LIMIT_SECONDS = 36.0
LAYOUTS = [(256, 4), (256, 3), (256, 2), (256, 5), (256, 6), (256, 8), (512, 1), (512, 2), (512, 3), (512, 4),
           (128, 8), (128, 16), (1024, 1), (1024, 2)]  # fmt: skip
"""Threads per block, blocks per multiprocessor."""


def shapes(base):
    """The shape in use, and those that differ from it in a way that could matter; the likely ones first."""
    found = [base]
    for threads, blocks in LAYOUTS:
        for unroll in (1, 2, 4, 8):
            if 512 <= threads * blocks <= 2048 and 1024 <= threads * blocks * unroll <= 8192:
                found.append(replace(base, threads=threads, blocks=blocks, unroll=unroll))
    found += [
        replace(base, load=load, store=store) for load in ("plain", "nc", "cs") for store in ("plain", "cs", "cg")
    ]
    for change in ({"tile": 8192}, {"tile": 32768}, {"near": 10**6}, {"near": 0}, {"counted": 0}):
        found += [replace(shape, **change) for shape in (base, replace(base, threads=512, blocks=2))]
    found += [replace(base, tile=4096, near=near) for near in (8, 10**6)]
    return list(dict.fromkeys(found))


def sources(kind, shape):
    """(kernel's name, element, source) of what a shape needs."""
    if kind == "copies":
        return [("copy_regions", None, kernels.copy_source(shape))]
    return [("sum_regions", name, kernels.sum_source(name, Reduction.SUM, shape)) for name in ("float32", "bfloat16")]


def file_of(folder, source):
    return Path(folder) / f"{hashlib.sha256(source.encode()).hexdigest()[:20]}.cubin"


def compile_all(folder, threads=2):
    """Compile every kernel of the sweep with nvcc."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    texts = [s for kind, base in (("copies", COPY_SHAPE), ("sums", SUM_SHAPE)) for shape in shapes(base)
             for _, _, s in sources(kind, shape)]  # fmt: skip

    def one(text):
        target = file_of(folder, text)
        if not target.exists():
            source = target.with_suffix(".cu")
            source.write_text(text)
            command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", "-o", str(target), str(source)]
            subprocess.run(command, check=True, capture_output=True)
            source.unlink()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, texts))
    print(len(texts), "kernels")


def load(kind, shape):
    """The kernels of a shape by element; from the folder where they are."""
    import cupy

    found, folder = {}, os.environ.get("SYNTH_TEST_CUBINS", "")
    for name, element, source in sources(kind, shape):
        path = file_of(folder, source)
        if path.exists():
            found[element] = cupy.RawModule(path=str(path)).get_function(name)
        else:
            found[element] = cupy.RawKernel(source, name, options=("--std=c++17",))
    return found


def short(shape):
    """What a shape is, in a few letters."""
    return " ".join(f"{name}={value}" for name, value in asdict(shape).items())


def main(out=None):
    import cupy

    import runtime.cuda.memory as memory_module
    from tests.gpu.kernels import COPY_CASES, SUM_CASES, Bench

    results = []
    kinds = [("copies", COPY_SHAPE, COPY_CASES), ("sums", SUM_SHAPE, SUM_CASES)]

    def measured(kind, cases, shape, bench):
        memory = memory_module.CudaMemory(0, **{"copying" if kind == "copies" else "adding": shape})
        memory.stream = cupy.cuda.get_current_stream()
        try:
            ready = load(kind, shape)
            memory_module.copy_kernel = lambda shape: ready[None]
            memory_module.sum_kernel = lambda element, reduction, shape: ready[element]
            ratios = {what: round(getattr(bench, kind)(memory, **case)[1], 3) for what, case in cases.items()}
        except Exception as error:  # a shape that does not fit the chip
            print("   failed:", short(shape), str(error)[-200:], flush=True)
            return
        results.append({"kind": kind, "mib": bench.n // 2**20, "shape": asdict(shape), "ratios": ratios})
        if out:
            (Path(out) / "sweep.json").write_text(json.dumps(results))

    def table(kind, rows):
        for row in rows:
            values = " ".join(f"{value:.2f}" for value in row["ratios"].values())
            print(f"   {kind} {row['mib']:>4} MiB  {values}  {short(kernels.Shape(**row['shape']))}", flush=True)

    small = Bench(64)
    print(f"   plain copy {small.plain(2 * small.n) / 1e9:.0f} GB/s at 64 MiB", flush=True)
    for kind, base, cases in kinds:
        until = time.monotonic() + LIMIT_SECONDS / 2
        for number, shape in enumerate(shapes(base)):
            if number and time.monotonic() > until:
                print(f"   {kind}: {number} of {len(shapes(base))} shapes fit in the time", flush=True)
                break
            measured(kind, cases, shape, small)
    del small
    large = Bench(256)
    for kind, base, cases in kinds:
        ranked = sorted((row for row in results if row["kind"] == kind), key=lambda row: -min(row["ratios"].values()))
        for shape in dict.fromkeys([base, *(kernels.Shape(**row["shape"]) for row in ranked[:5])]):
            measured(kind, cases, shape, large)
        table(kind, ranked[:12])
        table(kind, [row for row in results if row["kind"] == kind and row["mib"] == 256])
        table(kind, [row for row in results if row["kind"] == kind and row["shape"] == asdict(base)])
    return results


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        compile_all(sys.argv[2])
    else:
        main(*sys.argv[1:])
