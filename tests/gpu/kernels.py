"""The fused kernels alone: right for every alignment and type, and their bandwidth beside a plain copy."""

import cupy
import numpy as np

from runtime.buffers import HostMemory
from runtime.cuda.memory import CudaMemory
from runtime.elements import Element, Reduction
from synth.plan.layout import starts
from synth.plan.program import Copies, Program, Sums


def _program(copies=None, sums=None):
    from synth.plan.program import Round

    nothing = Copies(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    none = Sums(*(np.zeros(n, dtype=np.int64) for n in (0, 0, 0, 1, 0, 0)))
    return Program(0, 0, 0, 0, nothing, (Round(0, copies or nothing, (), (), nothing, sums or none),))


def _copies(dst, src, length):
    each = len(length)
    return Copies(np.full(each, 2), np.array(dst), np.full(each, 0), np.array(src), np.array(length))


def check_copies(memory, rng):
    """Regions of any length at any offset, bytes to 8-byte elements."""
    for itemsize in (1, 2, 4, 8):
        lengths = np.concatenate([rng.integers(1, 100, 40), rng.integers(1000, 100_000, 10)])
        gaps = rng.integers(0, 20, len(lengths) + 1)
        dst = starts(lengths + gaps[1:])[:-1] + gaps[0]
        src = starts(lengths + rng.integers(0, 9, len(lengths)))[:-1]
        total = int((dst + lengths).max()) + 20
        source = rng.integers(0, 256, int((src + lengths).max()) * itemsize).astype(np.uint8)
        program = _program(_copies(dst, src, lengths))
        element = Element("x", itemsize)
        work = program.rounds[0].pack
        device = memory.bind(cupy.asarray(source), cupy.zeros(1, dtype=cupy.uint8), total, element)
        device.parts[2].fill(7)
        memory.prepare(program, element)
        memory.copy(work, device)
        host = HostMemory()
        right = host.bind(source, np.zeros(1, dtype=np.uint8), total, element)
        right.parts[2][:] = 7
        host.copy(work, right)
        n = total * itemsize
        assert bool((device.parts[2][:n].get() == right.parts[2][:n]).all()), itemsize
    return True


def check_sums(memory, rng):
    """Every type and reduction against numpy, aligned and not."""
    from runtime.elements import _SUMMABLE

    for name in _SUMMABLE:
        size = 2 if name == "bfloat16" else np.dtype(name).itemsize
        element = Element(name, size)
        for reduction in Reduction:
            lengths = np.array([1, 7, 33, 5000, 40_000])
            at = starts(lengths + 3)[:-1]
            terms = np.array([1, 2, 3, 2, 5])
            span = int(at[-1] + lengths[-1]) + 16
            raw = rng.integers(0, 3, span * 6).astype(np.float32) + (reduction is Reduction.PROD)
            if name == "bfloat16":
                source = (raw.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            else:
                source = raw.astype(name).view(np.uint8)
            offsets = np.concatenate([at[i] + np.arange(t) * span for i, t in enumerate(terms)])
            sums = Sums(np.full(5, 1), at, lengths, starts(terms), np.zeros(len(offsets), dtype=np.int64), offsets)
            program = _program(sums=sums)
            work = program.rounds[0].sums
            target = np.zeros(span * size, dtype=np.uint8)
            device = memory.bind(cupy.asarray(source), cupy.asarray(target), 1, element)
            memory.prepare(program, element)
            memory.sum(work, device, reduction)
            host = HostMemory()
            right = host.bind(source, target.copy(), 1, element)
            host.sum(work, right, reduction)
            assert bool((device.parts[1].get() == right.parts[1]).all()), (name, reduction)
    return True


def _median_seconds(run, repeat=20, times=8):
    """Of one call, from the device's clock around several that follow each other without a gap."""
    run()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    seconds = []
    for _ in range(repeat):
        begin.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / times)
    return float(np.median(seconds))


def bandwidth(memory):
    """Rows of (what, MiB, bytes moved per second / the same of a plain copy) in one run."""
    rows = []
    for mib in (16, 64, 256, 1024):
        n = mib * 2**20
        source = cupy.random.randint(0, 256, n, dtype=cupy.uint8)
        target = cupy.empty_like(source)
        plain = 2 * n / _median_seconds(lambda s=source, t=target: cupy.cuda.runtime.memcpyAsync(
            t.data.ptr, s.data.ptr, s.nbytes, 3, cupy.cuda.get_current_stream().ptr))  # fmt: skip
        rows.append(("plain copy", mib, plain, 1.0))
        for name, itemsize, pieces, shift in (
            ("pack", 4, 64, 0),
            ("pack, unaligned by 4", 4, 64, 1),
            ("pack bytes, odd", 1, 64, 1),
        ):
            length = n // itemsize // pieces - 64
            dst = np.arange(pieces) * length
            src = np.arange(pieces)[::-1] * (length + 16) + shift
            program = _program(_copies(dst, src, np.full(pieces, length)))
            element = Element("x", itemsize)
            buffers = memory.bind(source, target, pieces * length, element)
            memory.prepare(program, element)
            work = program.rounds[0].pack
            seconds = _median_seconds(lambda w=work, b=buffers: memory.copy(w, b))
            rate = 2 * pieces * length * itemsize / seconds
            rows.append((name, mib, rate, rate / plain))
        for name, size in (("float32", 4), ("bfloat16", 2)):
            for terms in (2, 4):
                element = Element(name, size)
                length = n // size // terms // 16 * 16
                sums = Sums(np.array([1]), np.array([0]), np.array([length]), np.array([0, terms]),
                            np.zeros(terms, dtype=np.int64), np.arange(terms) * length)  # fmt: skip
                program = _program(sums=sums)
                data = cupy.zeros(n, dtype=cupy.uint8)
                data.view(cupy.uint16)[:] = cupy.random.randint(0x3C00, 0x3F00, n // 2, dtype=cupy.uint16)
                buffers = memory.bind(data, target, 1, element)
                memory.prepare(program, element)
                work = program.rounds[0].sums
                seconds = _median_seconds(lambda w=work, b=buffers: memory.sum(w, b, Reduction.SUM))
                rate = (terms + 1) * length * size / seconds
                rows.append((f"sum of {terms}, {name}", mib, rate, rate / plain))
    return rows


def main():
    memory = CudaMemory(0)
    memory.stream = cupy.cuda.get_current_stream()
    rng = np.random.default_rng(0)
    assert check_copies(memory, rng)
    assert check_sums(memory, rng)
    return bandwidth(memory)
