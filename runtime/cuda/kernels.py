"""Fused CUDA kernels: many scattered copies, or many sums, in one launch; and rows into slots of fixed capacity.

The first two walk a table of regions cut into tiles and find a tile's region in it. Loads and stores are 16 bytes wide
wherever the data lies, and each thread has several of them in flight; no more blocks are started than the chip holds
at once. The numbers are a :class:`Shape`; ``tests/gpu/sweep.py`` measures others beside these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from runtime.cuda.sources import COMMON, COPY, MOVE, SLOTS, SUM
from runtime.elements import Reduction
from synth.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a kernel is laid out on the chip.

    Attributes:
        tile: bytes a block moves between two looks at the table; a multiple of 16.
        threads: per block.
        blocks: per multiprocessor; all are resident at once, which bounds the registers of a thread.
        unroll: 16-byte words each thread has in flight, of each term of a sum.
        near: with up to so many tiles per block a block takes neighbours, with more the blocks take turns.
        counted: regions up to which a tile's region is found by looking at all of them at once, not by bisection.
        load: ``plain``, ``nc`` (read-only path) or ``cs`` (streaming: evicted first).
        store: ``plain``, ``cs`` or ``cg`` (past L1).
    """

    tile: int = 16384
    threads: int = 256
    blocks: int = 4
    unroll: int = 4
    near: int = 8
    counted: int = 4096
    load: str = "plain"
    store: str = "plain"

    @property
    def defines(self) -> str:
        """The macros that the sources are written in."""
        load = {"plain": "(*(p))", "nc": "__ldg(p)", "cs": "__ldcs(p)"}[self.load]
        store = {"plain": "(*(p) = (v))", "cs": "__stcs(p, v)", "cg": "__stcg(p, v)"}[self.store]
        numbers = "".join(
            f"#define {name.upper()} {getattr(self, name)}\n"
            for name in ("tile", "threads", "blocks", "unroll", "near", "counted")
        )
        return f"{numbers}#define LOAD(p) {load}\n#define STORE(p, v) {store}\n"


COPY_SHAPE = Shape(blocks=3, near=0)
SUM_SHAPE = Shape(blocks=2)
"""Both chosen on an H200 among the 66 shapes of the sweep: the best of those that were good at 64 and 256 MiB."""

_TYPES = {
    "float16": ("u16", "float", "widen_f16", "narrow_f16"),
    "bfloat16": ("u16", "float", "widen_bf16", "narrow_bf16"),
    "float32": ("float", "float", "", ""),
    "float64": ("double", "double", "", ""),
    "int8": ("signed char", "signed char", "", ""),
    "uint8": ("u8", "u8", "", ""),
    "int16": ("short", "short", "", ""),
    "uint16": ("u16", "u16", "", ""),
    "int32": ("int", "int", "", ""),
    "uint32": ("u32", "u32", "", ""),
    "int64": ("i64", "i64", "", ""),
    "uint64": ("u64", "u64", "", ""),
}

_COMBINE = {
    Reduction.SUM: "(A)((a) + (b))",
    Reduction.PROD: "(A)((a) * (b))",
    Reduction.MIN: "((b) < (a) ? (b) : (a))",
    Reduction.MAX: "((b) > (a) ? (b) : (a))",
}


def copy_source(shape: Shape) -> str:
    """CUDA source of ``copy_regions``."""
    return shape.defines + COMMON + MOVE + COPY


def sum_source(element: str, reduction: Reduction, shape: Shape) -> str:
    """CUDA source of ``sum_regions`` for one element type.

    Raises:
        InvalidArgument: the type cannot be added.
    """
    if element not in _TYPES:
        raise InvalidArgument(f"{element}: cannot be reduced; reductions know {', '.join(_TYPES)}", subject=element)
    stored, summed, widen, narrow = _TYPES[element]
    types = (
        f"typedef {stored} T;\ntypedef {summed} A;\n"
        f"#define WIDEN(v) {widen or '(A)'}(v)\n#define NARROW(v) {narrow or '(T)'}(v)\n"
        f"#define COMBINE(a, b) {_COMBINE[reduction]}\n"
    )
    return shape.defines + COMMON + types + SUM


def slots_source(shape: Shape) -> str:
    """CUDA source of ``fill_slots``."""
    return shape.defines + COMMON + MOVE + SLOTS


@cache
def copy_kernel(shape: Shape = COPY_SHAPE) -> Any:
    """``copy_regions(table, regions, tiles, input, output, scratch, itemsize)``."""
    return _compile(copy_source(shape), "copy_regions")


@cache
def sum_kernel(element: str, reduction: Reduction, shape: Shape = SUM_SHAPE) -> Any:
    """``sum_regions(table, regions, terms, tiles, input, output, scratch)``; errors as :func:`sum_source`."""
    return _compile(sum_source(element, reduction, shape), "sum_regions")


@cache
def slots_kernel(shape: Shape = COPY_SHAPE) -> Any:
    """``fill_slots(rows, available, stride, counts, wide, capacity, row bytes, block bytes, blocks, dropped)``."""
    return _compile(slots_source(shape), "fill_slots")


def _compile(source: str, name: str) -> Any:
    cupy: Any = import_module("cupy")
    return cupy.RawKernel(source, name, options=("--std=c++17",))
