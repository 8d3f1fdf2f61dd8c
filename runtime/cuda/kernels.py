"""Fused CUDA kernels: many scattered copies, or many sums, in one launch.

Both walk a table of regions cut into tiles of ``TILE`` bytes and find a tile's region by bisection. With few tiles per
block, a block takes neighbours, so that it seldom looks a region up; with many, blocks take turns, which the memory
likes better (both measured). Stores are 16 bytes wide, and loads too; each thread has up to four of them in flight.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from runtime.elements import Reduction
from synth.errors import InvalidArgument

TILE = 16384
THREADS = 256

_COMMON = r"""
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Which tiles a block takes.
struct Walk {
    i64 begin, end, step;
    __device__ __forceinline__ explicit Walk(i64 tiles) {
        if (tiles <= 8 * (i64)gridDim.x) {
            begin = tiles * blockIdx.x / gridDim.x, end = tiles * (blockIdx.x + 1) / gridDim.x, step = 1;
        } else {
            begin = blockIdx.x, end = tiles, step = gridDim.x;
        }
    }
};

__device__ __forceinline__ int find_region(const i64* start, int regions, i64 tile) {
    int low = 0, high = regions;
    while (high - low > 1) {
        int middle = (low + high) >> 1;
        if (start[middle] <= tile) low = middle; else high = middle;
    }
    return low;
}
"""

_COPY = (
    _COMMON
    + r"""
template <typename T>
__device__ __forceinline__ void move(char* dst, const char* src, i64 bytes) {
    const i64 count = bytes / sizeof(T);
    T* to = (T*)dst;
    const T* from = (const T*)src;
    i64 i = threadIdx.x;
    for (; i + 3 * THREADS < count; i += 4 * THREADS) {
        T a = from[i], b = from[i + THREADS], c = from[i + 2 * THREADS], d = from[i + 3 * THREADS];
        to[i] = a; to[i + THREADS] = b; to[i + 2 * THREADS] = c; to[i + 3 * THREADS] = d;
    }
    for (; i < count; i += THREADS) to[i] = from[i];
}

// [head bytes][wide accesses][tail bytes]; both sides have the same position inside a word of T
template <typename T>
__device__ __forceinline__ void move_peeled(char* dst, const char* src, i64 bytes) {
    i64 head = (sizeof(T) - ((u64)dst & (sizeof(T) - 1))) & (sizeof(T) - 1);
    if (head > bytes) head = bytes;
    for (i64 i = threadIdx.x; i < head; i += THREADS) dst[i] = src[i];
    const i64 body = (bytes - head) / sizeof(T) * sizeof(T);
    move<T>(dst + head, src + head, body);
    for (i64 i = head + body + threadIdx.x; i < bytes; i += THREADS) dst[i] = src[i];
}

template <int WORD>
__device__ __forceinline__ uint4 shifted(const uint4 a, const uint4 b, u32 bits) {
    const u32 w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint4 out;
    out.x = __funnelshift_r(w[WORD], w[WORD + 1], bits);
    out.y = __funnelshift_r(w[WORD + 1], w[WORD + 2], bits);
    out.z = __funnelshift_r(w[WORD + 2], w[WORD + 3], bits);
    out.w = __funnelshift_r(w[WORD + 3], w[WORD + 4], bits);
    return out;
}

// Source and destination differ in their place inside 16 bytes: aligned 16-byte stores, each put together from two
// aligned loads (the second is the neighbour's first and comes from L1). WORD is the source's 4-byte word inside 16.
template <int WORD>
__device__ __forceinline__ void move_shifted(char* dst, const char* src, i64 bytes) {
    i64 head = (16 - ((u64)dst & 15)) & 15;
    if (head > bytes) head = bytes;
    for (i64 i = threadIdx.x; i < head; i += THREADS) dst[i] = src[i];
    const char* from = src + head;
    const i64 count = (bytes - head) / 16 - 1;  // the last 16 bytes go one by one: no load passes the source's end
    const uint4* base = (const uint4*)((u64)from & ~(u64)15);
    const u32 bits = ((u32)(u64)from & 3) * 8;
    uint4* to = (uint4*)(dst + head);
    i64 i = threadIdx.x;
    for (; i + 3 * THREADS < count; i += 4 * THREADS) {
        uint4 a[4], b[4];
        #pragma unroll
        for (int k = 0; k < 4; k++) { a[k] = base[i + k * THREADS]; b[k] = base[i + k * THREADS + 1]; }
        #pragma unroll
        for (int k = 0; k < 4; k++) to[i + k * THREADS] = shifted<WORD>(a[k], b[k], bits);
    }
    for (; i < count; i += THREADS) to[i] = shifted<WORD>(base[i], base[i + 1], bits);
    for (i = head + count * 16 + threadIdx.x; i < bytes; i += THREADS) dst[i] = src[i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_regions(const i64* table, int regions, i64 tiles, char* b0, char* b1, char* b2, int itemsize) {
    const i64 *dst_buffer = table, *dst_offset = table + regions, *src_buffer = table + 2 * regions,
              *src_offset = table + 3 * regions, *length = table + 4 * regions, *start = table + 5 * regions;
    const Walk walk(tiles);
    i64 tile = walk.begin;
    if (tile >= walk.end) return;
    int r = find_region(start, regions, tile);
    i64 first = start[r], end = start[r + 1], size = length[r] * itemsize;
    char* to = (dst_buffer[r] == 1 ? b1 : b2) + dst_offset[r] * itemsize;
    const char* from = (src_buffer[r] == 0 ? b0 : src_buffer[r] == 1 ? b1 : b2) + src_offset[r] * itemsize;
    for (; tile < walk.end; tile += walk.step) {
        if (tile >= end) {
            r = find_region(start, regions, tile);
            first = start[r], end = start[r + 1], size = length[r] * itemsize;
            to = (dst_buffer[r] == 1 ? b1 : b2) + dst_offset[r] * itemsize;
            from = (src_buffer[r] == 0 ? b0 : src_buffer[r] == 1 ? b1 : b2) + src_offset[r] * itemsize;
        }
        const i64 begin = (tile - first) * TILE;
        i64 bytes = size - begin;
        if (bytes > TILE) bytes = TILE;
        char* dst = to + begin;
        const char* src = from + begin;
        const int word = (int)(((u64)src - (u64)dst) & 15) >> 2;  // of the source where the destination is aligned
        if ((((u64)dst ^ (u64)src) & 15) == 0) move_peeled<uint4>(dst, src, bytes);
        else if (bytes < 64) move<u8>(dst, src, bytes);  // too short for words
        else if (word == 0) move_shifted<0>(dst, src, bytes);
        else if (word == 1) move_shifted<1>(dst, src, bytes);
        else if (word == 2) move_shifted<2>(dst, src, bytes);
        else move_shifted<3>(dst, src, bytes);
    }
}
"""
)

_SUM = (
    _COMMON
    + r"""
__device__ __forceinline__ float widen_bf16(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u16 narrow_bf16(float v) {
    u32 bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ float widen_f16(u16 v) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}
__device__ __forceinline__ u16 narrow_f16(float v) {
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

#define VECTOR (16 / (int)sizeof(T))
union Word { uint4 wide; T item[VECTOR]; };

extern "C" __global__ void __launch_bounds__(THREADS)
sum_regions(const i64* table, int regions, int terms, i64 tiles, char* b0, char* b1, char* b2) {
    const i64 *buffer = table, *offset = table + regions, *length = table + 2 * regions, *first = table + 3 * regions,
              *start = table + 4 * regions + 1, *term_buffer = table + 5 * regions + 2,
              *term_offset = table + 5 * regions + 2 + terms;
    const i64 per_tile = TILE / sizeof(T);
    const Walk walk(tiles);
    i64 tile = walk.begin;
    if (tile >= walk.end) return;
    int r = find_region(start, regions, tile);
    for (; tile < walk.end; tile += walk.step) {
        if (tile >= start[r + 1]) r = find_region(start, regions, tile);
        const i64 begin = (tile - start[r]) * per_tile;
        i64 count = length[r] - begin;
        if (count > per_tile) count = per_tile;
        T* out = (T*)(buffer[r] == 1 ? b1 : b2) + offset[r] + begin;
        const i64 low = first[r], high = first[r + 1];
        u64 bits = (u64)out;
        for (i64 t = low; t < high; t++)
            bits |= (u64)((T*)(term_buffer[t] == 0 ? b0 : term_buffer[t] == 1 ? b1 : b2) + term_offset[t] + begin);
        const i64 wide = (bits & 15) == 0 ? count / VECTOR : 0;
        i64 i = threadIdx.x;
        if (sizeof(T) >= 4)  // two words of each term in flight; half types would need too many registers for it
        for (; i + THREADS < wide; i += 2 * THREADS) {
            A total[2][VECTOR];
            for (i64 t = low; t < high; t++) {
                const uint4* from = (const uint4*)((T*)(term_buffer[t] == 0 ? b0 : term_buffer[t] == 1 ? b1 : b2)
                                                   + term_offset[t] + begin);
                Word one, two;
                one.wide = from[i];
                two.wide = from[i + THREADS];
                #pragma unroll
                for (int k = 0; k < VECTOR; k++) {
                    total[0][k] = t == low ? WIDEN(one.item[k]) : COMBINE(total[0][k], WIDEN(one.item[k]));
                    total[1][k] = t == low ? WIDEN(two.item[k]) : COMBINE(total[1][k], WIDEN(two.item[k]));
                }
            }
            Word one, two;
            #pragma unroll
            for (int k = 0; k < VECTOR; k++) { one.item[k] = NARROW(total[0][k]); two.item[k] = NARROW(total[1][k]); }
            ((uint4*)out)[i] = one.wide;
            ((uint4*)out)[i + THREADS] = two.wide;
        }
        for (; i < wide; i += THREADS) {
            A total[VECTOR];
            for (i64 t = low; t < high; t++) {
                Word word;
                word.wide = ((const uint4*)((T*)(term_buffer[t] == 0 ? b0 : term_buffer[t] == 1 ? b1 : b2)
                                            + term_offset[t] + begin))[i];
                #pragma unroll
                for (int k = 0; k < VECTOR; k++)
                    total[k] = t == low ? WIDEN(word.item[k]) : COMBINE(total[k], WIDEN(word.item[k]));
            }
            Word result;
            #pragma unroll
            for (int k = 0; k < VECTOR; k++) result.item[k] = NARROW(total[k]);
            ((uint4*)out)[i] = result.wide;
        }
        for (i = wide * VECTOR + threadIdx.x; i < count; i += THREADS) {
            A total = WIDEN(((T*)(term_buffer[low] == 0 ? b0 : term_buffer[low] == 1 ? b1 : b2)
                             + term_offset[low] + begin)[i]);
            for (i64 t = low + 1; t < high; t++)
                total = COMBINE(total, WIDEN(((T*)(term_buffer[t] == 0 ? b0 : term_buffer[t] == 1 ? b1 : b2)
                                              + term_offset[t] + begin)[i]));
            out[i] = NARROW(total);
        }
    }
}
"""
)

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


def _compile(source: str, name: str) -> Any:
    cupy: Any = import_module("cupy")
    sizes = f"#define TILE {TILE}\n#define THREADS {THREADS}\n"
    return cupy.RawKernel(sizes + source, name, options=("--std=c++17",))


@cache
def copy_kernel() -> Any:
    """``copy_regions(table, regions, tiles, input, output, scratch, itemsize)``."""
    return _compile(_COPY, "copy_regions")


@cache
def sum_kernel(element: str, reduction: Reduction) -> Any:
    """``sum_regions(table, regions, terms, tiles, input, output, scratch)`` for one element type.

    Raises:
        InvalidArgument: the type cannot be added.
    """
    if element not in _TYPES:
        raise InvalidArgument(f"{element}: cannot be reduced; reductions know {', '.join(_TYPES)}", subject=element)
    stored, summed, widen, narrow = _TYPES[element]
    defines = (
        f"#define WIDEN(v) {widen or '(A)'}(v)\n#define NARROW(v) {narrow or '(T)'}(v)\n"
        f"#define COMBINE(a, b) {_COMBINE[reduction]}\n"
    )
    head, body = _COMMON, _SUM[len(_COMMON) :]
    aliases = f"typedef {stored} T;\ntypedef {summed} A;\n"
    return _compile(head + aliases + defines + body, "sum_regions")
