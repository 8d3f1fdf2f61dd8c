"""The CUDA sources, compiled for this machine's processor: right for every alignment, length and type."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from runtime.buffers import Buffers, HostMemory
from runtime.cuda import kernels
from runtime.cuda.kernels import Shape
from runtime.elements import Element, Reduction
from synth.errors import InvalidArgument
from synth.plan.layout import starts
from synth.plan.program import Copies, Sums

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
SMALL = Shape(tile=256, threads=16, blocks=1, unroll=2, near=4)
HALVES = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));': "r = widened_half(v);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));': "r = narrowed_half(v);",
}
LAUNCH = {
    "copy_regions": "(const i64* t, int n, i64 k, char* a, char* b, char* c, int s) "
    "{ launch(x, y, THREADS, [=] { copy_regions(t, n, k, a, b, c, s); }); }",
    "sum_regions": "(const i64* t, int n, int m, i64 k, char* a, char* b, char* c) "
    "{ launch(x, y, THREADS, [=] { sum_regions(t, n, m, k, a, b, c); }); }",
    "fill_slots": "(const char* r, i64 n, i64 s, const void* c, int w, i64 p, i64 q, i64 b, char* o, u64* d) "
    "{ launch(x, y, THREADS, [=] { fill_slots(r, n, s, c, w, p, q, b, o, d); }); }",
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile a kernel for the host; gives a function of (blocks, rows of blocks, arguments)."""
    folder = tmp_path_factory.mktemp("kernels")
    known = {}

    def get(source, name):
        if source not in known:
            path = folder / f"{name}{len(known)}"
            body = source
            for cuda, host in HALVES.items():
                body = body.replace(cuda, host)
            entry = f'extern "C" void go(int x, int y, {LAUNCH[name][1:]}\n'
            shim = Path(__file__).with_name("cuda_on_host.h")
            path.with_suffix(".cpp").write_text(f'#include "{shim}"\n{body}{entry}')
            command = ["g++", "-std=c++20", "-O0", "-w", "-fPIC", "-shared", "-fno-strict-aliasing", "-pthread"]
            subprocess.run([*command, "-o", f"{path}.so", f"{path}.cpp"], check=True)
            known[source] = ctypes.CDLL(f"{path}.so").go
        return known[source]

    return get


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


def aligned(bytes, off=0):
    """Zeroed bytes that begin ``off`` after a multiple of 16."""
    whole = np.zeros(bytes + 32, dtype=np.uint8)
    begin = -whole.ctypes.data % 16 + off
    return whole[begin : begin + bytes]


@pytest.mark.parametrize(("near", "counted"), [(4, 0), (0, 4096)])
def test_copies_at_every_alignment(compiled, near, counted):
    shape = Shape(tile=256, threads=16, blocks=1, unroll=2, near=near, counted=counted, load="cs", store="cs")
    go = compiled(kernels.copy_source(shape), "copy_regions")
    rng = np.random.default_rng(near + counted)
    for itemsize in (1, 2, 4, 8):
        lengths = np.concatenate([rng.integers(0, 20, 20), rng.integers(200, 1500, 12), [0]])
        dst = starts(lengths + rng.integers(0, 5, len(lengths)))[:-1]
        src = starts(lengths + rng.integers(0, 5, len(lengths)))[:-1]
        source, scratch = aligned(int((src + lengths).max()) * itemsize + 16, 3), aligned(60_000 * itemsize, 5)
        source[:] = rng.integers(0, 256, len(source))
        each = np.ones(len(lengths), dtype=np.int64)
        copies = Copies(2 * each, dst, 0 * each, src, lengths)
        tiles = starts(-(-lengths * itemsize // shape.tile))
        columns = (copies.dst_buffer, dst, copies.src_buffer, src, lengths, tiles)
        table = np.concatenate(columns).astype(np.int64)
        count = ctypes.c_int64(int(tiles[-1]))
        go(5, 1, at(table), len(lengths), count, at(source), None, at(scratch), itemsize)
        right = np.zeros_like(scratch)
        HostMemory().copy(copies, Buffers((source, right[:0], right), Element("x", itemsize)))
        np.testing.assert_array_equal(scratch, right)


@pytest.mark.parametrize(
    ("name", "reduction"),
    [("float32", "sum"), ("bfloat16", "sum"), ("float16", "prod"), ("int8", "sum"), ("uint64", "max")],
)
def test_sums_of_any_number_of_terms(compiled, name, reduction):
    rng, reduction = np.random.default_rng(3), Reduction(reduction)
    size = 2 if name == "bfloat16" else np.dtype(name).itemsize
    go = compiled(kernels.sum_source(name, reduction, SMALL), "sum_regions")
    counts = np.array([1, 2, 3, 4, 5, 8, 2])
    lengths = np.array([300, 700, 5, 900, 333, 260, 1])
    gaps = np.array([0, 0, 0, 3, 0, 0, 0])  # the fourth and what follows do not begin at 16 bytes
    offset = starts(np.where(gaps, lengths + gaps, -(-lengths // 16) * 16))[:-1]
    span = int(offset[-1] + lengths[-1]) + 16
    numbers = rng.integers(0, 3, span * 8)
    if name == "bfloat16":
        source = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        source = numbers.astype(name).view(np.uint8)
    terms = np.concatenate([offset[i] + np.arange(n) * (span // 16 * 16) for i, n in enumerate(counts)])
    first = starts(counts)
    sums = Sums(np.ones(len(counts), dtype=int), offset, lengths, first, np.zeros(len(terms), dtype=int), terms)
    held, target = aligned(len(source)), aligned(span * size)
    held[:] = source
    tiles = starts(-(-lengths * size // SMALL.tile))
    columns = (sums.buffer, offset, lengths, first, tiles, sums.term_buffer, terms)
    table = np.concatenate(columns).astype(np.int64)
    count = ctypes.c_int64(int(tiles[-1]))
    go(3, 1, at(table), len(counts), len(terms), count, at(held), at(target), at(target))
    right = np.zeros_like(target)
    HostMemory().sum(sums, Buffers((held, right, right), Element(name, size)), reduction)
    np.testing.assert_array_equal(target, right)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("stride", [0, 9])
def test_rows_into_slots(compiled, wide, stride):
    go = compiled(kernels.slots_source(SMALL), "fill_slots")
    capacity, row = 7, 37
    counts = np.array([3, 0, 12, 7, -2, 5], dtype=np.int64 if wide else np.int32)
    rows = np.random.default_rng(1).integers(0, 256, (stride * 6 or 26, row), dtype=np.uint8)
    block = -(-capacity * row // 16) * 16 + 16
    blocks, dropped = aligned(6 * block), np.array([100], dtype=np.uint64)
    sizes = map(ctypes.c_int64, (len(rows), stride))
    widths = map(ctypes.c_int64, (capacity, row, block))
    go(2, 6, at(rows), *sizes, at(counts), int(wide), *widths, at(blocks), at(dropped))
    begin = np.arange(6) * stride if stride else starts(counts.clip(0))[:-1]
    kept = np.minimum(counts.clip(0), capacity).clip(0, np.maximum(len(rows) - begin, 0))
    for peer in range(6):
        mine = blocks[peer * block : (peer + 1) * block]
        wanted = rows[begin[peer] : begin[peer] + kept[peer]].ravel()
        np.testing.assert_array_equal(mine[: len(wanted)], wanted)
        assert mine[-16:].view(np.int64).tolist() == [kept[peer], max(counts[peer], 0) - kept[peer]]
    assert dropped[0] == 100 + (counts.clip(0) - kept).sum()


def test_types_that_cannot_be_added_are_refused():
    with pytest.raises(InvalidArgument, match="cannot be reduced"):
        kernels.sum_source("complex64", Reduction.SUM, SMALL)
