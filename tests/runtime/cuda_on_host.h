// CUDA's words for a C++20 compiler: each thread of a block is a thread of the host, blocks run one after the other.
#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
#define __shared__ static
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct Index { unsigned x, y; };
static thread_local Index threadIdx;
static Index blockIdx, gridDim;
static std::barrier<>* gate;
static std::atomic<int> ballots;
static void __syncthreads() { gate->arrive_and_wait(); }
static int __syncthreads_count(bool mine) {
    ballots += mine;
    __syncthreads();
    const int found = ballots;
    __syncthreads();
    if (threadIdx.x == 0) ballots = 0;
    __syncthreads();
    return found;
}
template <typename T> T atomicAdd(T* place, T value) { return std::atomic_ref<T>(*place).fetch_add(value); }
template <typename T> T __ldg(const T* p) { return *p; }
template <typename T> T __ldcs(const T* p) { return *p; }
template <typename T> void __stcs(T* p, T v) { *p = v; }
template <typename T> void __stcg(T* p, T v) { *p = v; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
    return (unsigned)((((unsigned long long)high << 32) | low) >> (bits & 31));
}
static float __uint_as_float(unsigned v) { float r; std::memcpy(&r, &v, 4); return r; }
static unsigned __float_as_uint(float v) { unsigned r; std::memcpy(&r, &v, 4); return r; }
static float widened_half(unsigned short v) { _Float16 r; std::memcpy(&r, &v, 2); return r; }
static unsigned short narrowed_half(float v) { _Float16 h = v; unsigned short r; std::memcpy(&r, &h, 2); return r; }
template <typename Body> void launch(int x, int y, int threads, Body body) {
    gridDim = {(unsigned)x, (unsigned)y};
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
            std::barrier<> here(threads);
            gate = &here;
            std::vector<std::jthread> crowd;
            for (int i = 0; i < threads; i++) crowd.emplace_back([=] { threadIdx = {(unsigned)i, 0}; body(); });
        }
}
