"""CUDA source of the fused kernels; :mod:`runtime.cuda.kernels` compiles it for a shape and says what it does.

Macros that a shape defines: ``TILE`` bytes, ``THREADS`` and ``BLOCKS`` (resident per multiprocessor), ``UNROLL`` words
in flight, ``NEAR``, ``COUNTED``, and ``LOAD(pointer)`` and ``STORE(pointer, value)``.
"""

COMMON = r"""
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Which tiles a block takes: neighbours where there are few, in turns where there are many.
struct Walk {
    int begin, end, step;
    __device__ __forceinline__ explicit Walk(i64 tiles) {
        if (tiles <= NEAR * (i64)gridDim.x) {
            begin = (int)(tiles * blockIdx.x / gridDim.x), end = (int)(tiles * (blockIdx.x + 1) / gridDim.x), step = 1;
        } else {
            begin = blockIdx.x, end = (int)tiles, step = gridDim.x;
        }
    }
};

// The region of a tile. In a short table all threads look at once: one memory latency, not one per bisection.
__device__ __forceinline__ int find_region(const i64* start, int regions, int tile) {
    if (regions <= COUNTED) {
        int found = 0;
        for (int base = 0; base < regions; base += THREADS) {
            const int i = base + threadIdx.x;
            found += __syncthreads_count(i < regions && start[i] <= tile);
        }
        return found - 1;
    }
    int low = 0, high = regions;
    while (high - low > 1) {
        int middle = (low + high) >> 1;
        if (start[middle] <= tile) low = middle; else high = middle;
    }
    return low;
}

__device__ __forceinline__ int next_region(const i64* start, int regions, int tile, int r, int step) {
    if (step != 1) return find_region(start, regions, tile);
    do r++; while (start[r + 1] <= tile);
    return r;
}
"""

MOVE = r"""
template <typename T>
__device__ __forceinline__ void move(char* dst, const char* src, int count) {
    T* to = (T*)dst;
    const T* from = (const T*)src;
    int i = threadIdx.x;
    for (; i + (UNROLL - 1) * THREADS < count; i += UNROLL * THREADS) {
        T word[UNROLL];
        #pragma unroll
        for (int k = 0; k < UNROLL; k++) word[k] = LOAD(from + i + k * THREADS);
        #pragma unroll
        for (int k = 0; k < UNROLL; k++) STORE(to + i + k * THREADS, word[k]);
    }
    for (; i < count; i += THREADS) STORE(to + i, LOAD(from + i));
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

// The source lies otherwise inside 16 bytes than the destination: aligned 16-byte stores, each put together from two
// aligned loads (the second is the neighbour's first and comes from L1). WORD is the source's 4-byte word inside 16.
// Every load holds a byte that is wanted, so none leaves the source's memory.
template <int WORD>
__device__ __forceinline__ void move_shifted(char* dst, const char* src, int count) {
    const uint4* base = (const uint4*)((u64)src & ~(u64)15);
    const u32 bits = ((u32)(u64)src & 3) * 8;
    uint4* to = (uint4*)dst;
    int i = threadIdx.x;
    for (; i + (UNROLL - 1) * THREADS < count; i += UNROLL * THREADS) {
        uint4 a[UNROLL], b[UNROLL];
        #pragma unroll
        for (int k = 0; k < UNROLL; k++) { a[k] = base[i + k * THREADS]; b[k] = base[i + k * THREADS + 1]; }
        #pragma unroll
        for (int k = 0; k < UNROLL; k++) STORE(to + i + k * THREADS, shifted<WORD>(a[k], b[k], bits));
    }
    for (; i < count; i += THREADS) STORE(to + i, shifted<WORD>(base[i], base[i + 1], bits));
}

// [head bytes][16-byte words][tail bytes], the words aligned where they are stored.
__device__ __forceinline__ void move_bytes(char* dst, const char* src, int bytes) {
    int head = (int)((16 - ((u64)dst & 15)) & 15);
    if (head > bytes) head = bytes;
    if ((int)threadIdx.x < head) dst[threadIdx.x] = src[threadIdx.x];
    const int words = (bytes - head) / 16, done = head + words * 16;
    if ((int)threadIdx.x < bytes - done) dst[done + threadIdx.x] = src[done + threadIdx.x];
    dst += head, src += head;
    const int word = (int)((u64)src & 15) >> 2;
    if (((u64)src & 15) == 0) move<uint4>(dst, src, words);
    else if (word == 0) move_shifted<0>(dst, src, words);
    else if (word == 1) move_shifted<1>(dst, src, words);
    else if (word == 2) move_shifted<2>(dst, src, words);
    else move_shifted<3>(dst, src, words);
}
"""

COPY = r"""
struct Region {
    int first, end;
    i64 size;
    char* to;
    const char* from;
    int off;  // tiles after the first begin so many bytes early: there the destination is aligned
};

__device__ __forceinline__ Region region_at(const i64* table, int regions, int r, char* b0, char* b1, char* b2,
                                            int itemsize) {
    const i64 dst_buffer = table[r], dst_offset = table[regions + r], src_buffer = table[2 * regions + r],
              src_offset = table[3 * regions + r], length = table[4 * regions + r];
    const int first = (int)table[5 * regions + r], end = (int)table[5 * regions + r + 1];
    char* to = (dst_buffer == 1 ? b1 : b2) + dst_offset * itemsize;
    const char* from = (src_buffer == 0 ? b0 : src_buffer == 1 ? b1 : b2) + src_offset * itemsize;
    return {first, end, length * itemsize, to, from, (int)((u64)to & 15)};
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
copy_regions(const i64* table, int regions, i64 tiles, char* b0, char* b1, char* b2, int itemsize) {
    const i64* start = table + 5 * regions;
    const Walk walk(tiles);
    int tile = walk.begin;
    if (tile >= walk.end) return;
    int r = find_region(start, regions, tile);
    Region region = region_at(table, regions, r, b0, b1, b2, itemsize);
    for (; tile < walk.end; tile += walk.step) {
        if (tile >= region.end) {
            r = next_region(start, regions, tile, r, walk.step);
            region = region_at(table, regions, r, b0, b1, b2, itemsize);
        }
        const i64 begin = tile == region.first ? 0 : (i64)(tile - region.first) * TILE - region.off;
        const i64 end = tile + 1 == region.end ? region.size : (i64)(tile + 1 - region.first) * TILE - region.off;
        move_bytes(region.to + begin, region.from + begin, (int)(end - begin));
    }
}
"""

SUM = r"""
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

struct Terms {
    const i64 *buffer, *offset;
    T *b0, *b1, *b2;
    __device__ __forceinline__ const T* at(int term) const {
        const i64 which = buffer[term];
        return (which == 0 ? b0 : which == 1 ? b1 : b2) + offset[term];
    }
};

__device__ __forceinline__ void widened(A (&total)[VECTOR], const uint4 wide) {
    Word word;
    word.wide = wide;
    #pragma unroll
    for (int k = 0; k < VECTOR; k++) total[k] = WIDEN(word.item[k]);
}

__device__ __forceinline__ void combined(A (&total)[VECTOR], const uint4 wide) {
    Word word;
    word.wide = wide;
    #pragma unroll
    for (int k = 0; k < VECTOR; k++) total[k] = COMBINE(total[k], WIDEN(word.item[k]));
}

__device__ __forceinline__ uint4 narrowed(const A (&total)[VECTOR]) {
    Word word;
    #pragma unroll
    for (int k = 0; k < VECTOR; k++) word.item[k] = NARROW(total[k]);
    return word.wide;
}

// U words of each of N terms are loaded before the first is used; added from left to right.
template <int N, int U>
__device__ __forceinline__ void add_at(uint4* out, const uint4* const (&from)[N], int i) {
    uint4 word[U][N];
    #pragma unroll
    for (int u = 0; u < U; u++) {
        #pragma unroll
        for (int n = 0; n < N; n++) word[u][n] = LOAD(from[n] + i + u * THREADS);
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
        A total[VECTOR];
        widened(total, word[u][0]);
        #pragma unroll
        for (int n = 1; n < N; n++) combined(total, word[u][n]);
        STORE(out + i + u * THREADS, narrowed(total));
    }
}

template <int N, int U>
__device__ __forceinline__ void add_words(uint4* out, const Terms& terms, int low, i64 begin, int wide) {
    const uint4* from[N];
    #pragma unroll
    for (int n = 0; n < N; n++) from[n] = (const uint4*)(terms.at(low + n) + begin);
    int i = threadIdx.x;
    for (; i + (U - 1) * THREADS < wide; i += U * THREADS) add_at<N, U>(out, from, i);
    for (; i < wide; i += THREADS) add_at<N, 1>(out, from, i);
}

__device__ __forceinline__ void add_many(uint4* out, const Terms& terms, int low, int high, i64 begin, int wide) {
    for (int i = threadIdx.x; i < wide; i += THREADS) {
        A total[VECTOR];
        widened(total, LOAD((const uint4*)(terms.at(low) + begin) + i));
        int t = low + 1;
        for (; t + 1 < high; t += 2) {
            const uint4 one = LOAD((const uint4*)(terms.at(t) + begin) + i);
            const uint4 two = LOAD((const uint4*)(terms.at(t + 1) + begin) + i);
            combined(total, one);
            combined(total, two);
        }
        if (t < high) combined(total, LOAD((const uint4*)(terms.at(t) + begin) + i));
        STORE(out + i, narrowed(total));
    }
}

struct Sum {
    int first, end, low, high;
    i64 length;
    T* out;
    bool aligned;
};

__device__ __forceinline__ Sum sum_at(const i64* table, int regions, int r, const Terms& terms) {
    const i64 *first = table + 3 * regions, *start = first + regions + 1;
    const i64 buffer = table[r], offset = table[regions + r], length = table[2 * regions + r];
    const int low = (int)first[r], high = (int)first[r + 1], begin = (int)start[r], end = (int)start[r + 1];
    T* out = (buffer == 1 ? terms.b1 : terms.b2) + offset;
    u64 bits = (u64)out;
    for (int t = low; t < high; t++) bits |= (u64)terms.at(t);
    return {begin, end, low, high, length, out, (bits & 15) == 0};
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
sum_regions(const i64* table, int regions, int count, i64 tiles, char* b0, char* b1, char* b2) {
    const i64 *start = table + 4 * regions + 1, *term = start + regions + 1;
    const Terms terms = {term, term + count, (T*)b0, (T*)b1, (T*)b2};
    const int per_tile = TILE / (int)sizeof(T);
    const Walk walk(tiles);
    int tile = walk.begin;
    if (tile >= walk.end) return;
    int r = find_region(start, regions, tile);
    Sum sum = sum_at(table, regions, r, terms);
    for (; tile < walk.end; tile += walk.step) {
        if (tile >= sum.end) {
            r = next_region(start, regions, tile, r, walk.step);
            sum = sum_at(table, regions, r, terms);
        }
        const i64 begin = (i64)(tile - sum.first) * per_tile;
        const int low = sum.low, high = sum.high;
        const int items = (int)(sum.length - begin < per_tile ? sum.length - begin : per_tile);
        const int wide = sum.aligned ? items / VECTOR : 0;
        T* out = sum.out + begin;
        switch (high - low) {
            case 1: add_words<1, UNROLL>((uint4*)out, terms, low, begin, wide); break;
            case 2: add_words<2, UNROLL>((uint4*)out, terms, low, begin, wide); break;
            case 3: add_words<3, (UNROLL + 1) / 2>((uint4*)out, terms, low, begin, wide); break;
            case 4: add_words<4, (UNROLL + 1) / 2>((uint4*)out, terms, low, begin, wide); break;
            default: add_many((uint4*)out, terms, low, high, begin, wide);
        }
        for (int i = wide * VECTOR + threadIdx.x; i < items; i += THREADS) {
            A total = WIDEN(terms.at(low)[begin + i]);
            for (int t = low + 1; t < high; t++) total = COMBINE(total, WIDEN(terms.at(t)[begin + i]));
            out[i] = NARROW(total);
        }
    }
}
"""

SLOTS = r"""
// Rows for each peer into that peer's block of slots, at most ``capacity``; a block ends with how many rows it holds
// and how many found no room. blockIdx.y is the peer. ``stride`` is 0 where rows lie one peer after the other, else
// the rows from one peer's first to the next peer's first.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fill_slots(const char* rows, i64 available, i64 stride, const void* counts, int wide, i64 capacity, i64 row_bytes,
           i64 block_bytes, char* blocks, u64* dropped) {
    __shared__ u64 before;
    const int peer = blockIdx.y;
    if (threadIdx.x == 0) before = 0;
    __syncthreads();
    if (stride == 0) {
        i64 mine = 0;
        for (int i = threadIdx.x; i < peer; i += THREADS) {
            const i64 count = wide ? ((const i64*)counts)[i] : (i64)((const int*)counts)[i];
            mine += count > 0 ? count : 0;
        }
        if (mine) atomicAdd(&before, (u64)mine);
    }
    __syncthreads();
    const i64 asked = wide ? ((const i64*)counts)[peer] : (i64)((const int*)counts)[peer];
    const i64 wanted = asked > 0 ? asked : 0;
    const i64 begin = stride ? peer * stride : (i64)before;
    const i64 there = available > begin ? available - begin : 0;
    i64 kept = wanted < capacity ? wanted : capacity;
    if (kept > there) kept = there;
    char* block = blocks + peer * block_bytes;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        i64* note = (i64*)(block + block_bytes - 16);
        note[0] = kept;
        note[1] = wanted - kept;
        if (wanted > kept) atomicAdd(dropped, (u64)(wanted - kept));
    }
    const i64 bytes = kept * row_bytes;
    const char* from = rows + begin * row_bytes;
    for (i64 at = (i64)blockIdx.x * TILE; at < bytes; at += (i64)gridDim.x * TILE)
        move_bytes(block + at, from + at, (int)(bytes - at < TILE ? bytes - at : TILE));
}
"""
