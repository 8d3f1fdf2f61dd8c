"""The fused kernels alone: right for every alignment and type, and their bandwidth beside a plain copy."""

import cupy
import numpy as np

from runtime.buffers import Buffers, HostMemory
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


def median_seconds(runs, repeat=12):
    """Of one call, from the device's clock around several that follow each other without a gap.

    Args:
        runs: the same call on different data, so that no call finds its data in the cache.
        repeat: how often the device is read.
    """
    for run in runs:
        run()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    seconds = []
    for _ in range(repeat):
        begin.record()
        for run in runs:
            run()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / len(runs))
    return float(np.median(seconds))


class Bench:
    """Copies and sums of one size, timed beside a plain copy that moves as many bytes; data rotates.

    Args:
        mib: bytes that are read, in MiB.
    """

    def __init__(self, mib):
        self.n = mib * 2**20
        sets = max(3, 512 // mib)  # several times the cache
        self.sources = [cupy.random.randint(0, 256, self.n, dtype=cupy.uint8) for _ in range(min(sets, 8))]
        for data in self.sources:
            words = data.view(cupy.uint16)
            words[:] = (words & 0x03FF) + 0x3C00  # ordinary numbers in every floating type
        self.targets = [cupy.empty_like(data) for data in self.sources]
        self.pairs = list(zip(self.sources, self.targets, strict=True))
        self._plain = {}

    def plain(self, moved):
        """Bytes per second of a plain copy that reads and writes ``moved`` bytes in all."""
        n = moved // 2
        if n not in self._plain:
            stream = cupy.cuda.get_current_stream().ptr
            runs = [
                lambda s=s, t=t: cupy.cuda.runtime.memcpyAsync(t.data.ptr, s.data.ptr, n, 3, stream)
                for s, t in self.pairs
            ]
            self._plain[n] = 2 * n / median_seconds(runs)
        return self._plain[n]

    def copies(self, memory, itemsize=4, pieces=64, shift=0):
        """(bytes per second, ratio to the plain copy) of one launch that packs pieces in reverse order."""
        length = self.n // itemsize // pieces - 64
        dst = np.arange(pieces) * length
        src = np.arange(pieces)[::-1] * (length + 16) + shift
        program, element = _program(_copies(dst, src, np.full(pieces, length))), Element("x", itemsize)
        work, moved = program.rounds[0].pack, 2 * pieces * length * itemsize
        memory.prepare(program, element)
        buffers = [Buffers((source, source, target), element) for source, target in self.pairs]
        rate = moved / median_seconds([lambda b=b: memory.copy(work, b) for b in buffers])
        return rate, rate / self.plain(moved)

    def sums(self, memory, name="float32", size=4, terms=2):
        """(bytes per second, ratio to the plain copy) of one launch that adds parts of an array up."""
        length = self.n // size // terms // 16 * 16
        sums = Sums(np.array([1]), np.array([0]), np.array([length]), np.array([0, terms]),
                    np.zeros(terms, dtype=np.int64), np.arange(terms) * length)  # fmt: skip
        program, element = _program(sums=sums), Element(name, size)
        work, moved = program.rounds[0].sums, (terms + 1) * length * size
        memory.prepare(program, element)
        buffers = [Buffers((source, target, target), element) for source, target in self.pairs]
        rate = moved / median_seconds([lambda b=b: memory.sum(work, b, Reduction.SUM) for b in buffers])
        return rate, rate / self.plain(moved)


COPY_CASES = {
    "pack": {"itemsize": 4},
    "pack, unaligned by 4": {"itemsize": 4, "shift": 1},
    "pack bytes, odd": {"itemsize": 1, "shift": 1},
}
SUM_CASES = {
    f"sum of {terms}, {name}": {"name": name, "size": size, "terms": terms}
    for name, size in (("float32", 4), ("bfloat16", 2))
    for terms in (2, 4)
}


def bandwidth(memory):
    """Rows of (what, MiB, bytes moved per second / the same of a plain copy) in one run."""
    rows = []
    for mib in (16, 64, 256, 1024):
        bench = Bench(mib)
        rows.append(("plain copy", mib, bench.plain(2 * bench.n), 1.0))
        rows += [(what, mib, *bench.copies(memory, **case)) for what, case in COPY_CASES.items()]
        rows += [(what, mib, *bench.sums(memory, **case)) for what, case in SUM_CASES.items()]
    return rows


def main():
    memory = CudaMemory(0)
    memory.stream = cupy.cuda.get_current_stream()
    rng = np.random.default_rng(0)
    assert check_copies(memory, rng)
    assert check_sums(memory, rng)
    rows = bandwidth(memory)
    for what, mib, rate, ratio in rows:
        print(f"   {what:<22} {mib:>5} MiB {rate / 1e9:8.0f} GB/s  {ratio:5.2f} of a plain copy", flush=True)
    return rows


if __name__ == "__main__":
    main()
