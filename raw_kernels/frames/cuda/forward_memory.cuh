// The way forward with weights in memory. A thread takes a unit of one of the samples at a time.

template <int M>
__device__ __forceinline__ void walk_tiles(
    const real* __restrict__ projected, const real* __restrict__ weight_hh, const real* __restrict__ bias_hh,
    const real* __restrict__ unit, const real* __restrict__ initial, const long long* __restrict__ lengths,
    real* __restrict__ state, real* __restrict__ gates, real* __restrict__ final, int steps, int hidden,
    size_type sets, size_type batch, size_type walks, int reverse, real* shared)
{
    const size_type plane = hidden * walks;
    Matrix matrix = {R * hidden, hidden, hidden, 1, nullptr};
    real *const now = shared, *const others = now + padded(hidden) * M;
    real* const sums = others + (P - 1) * hidden * M;
    for (size_type number = blockIdx.x; number < tile_count(sets, batch, M); number += gridDim.x) {
        const Tile tile(number, hidden, sets, batch, M);
        matrix.values = weight_hh + tile.set * R * hidden * hidden;
        const real* const bias = bias_hh + tile.set * R * hidden;
        for (int e = threadIdx.x; e < padded(hidden) * M; e += BLOCK) now[e] = real(0);
        __syncthreads();
        for (int e = threadIdx.x; e < hidden * M; e += BLOCK)
            for (int i = 0; i < P && e % M < tile.count; ++i)
                (i ? others + (i - 1) * hidden * M : now)[e] = initial[tile.element(P, i, e / M, e % M)];
        __syncthreads();
        real x[G];
        const auto fetch = [&](int s, int e) {
            const size_type t = reverse ? steps - 1 - s : s;
#pragma unroll
            for (int g = 0; g < G; ++g)
                x[g] = projected[t * G * plane + tile.element(G, g, e / M, e % M)];
        };
        for (int s = 0; s < steps; ++s) {
            const size_type t = reverse ? steps - 1 - s : s;
            const int own = threadIdx.x;
            if (own < hidden * M && own % M < tile.count) fetch(s, own);
            matrix.multiply<M>(now, sums);
            __syncthreads();
            for (int e = own; e < hidden * M; e += BLOCK) {
                const int j = e / M, m = e % M;
                if (m >= tile.count) continue;
                if (e != own) fetch(s, e);
                const size_type b = tile.first + m;
                real u[R], p[Q_EXTENT], before[P], after[P], kept[K_EXTENT] = {};
#pragma unroll
                for (int i = 0; i < P; ++i)
                    after[i] = before[i] = i ? others[(i - 1) * hidden * M + e] : now[e];
                if (t < lengths[b]) {
#pragma unroll
                    for (int g = 0; g < R; ++g)
                        u[g] = bias[g * hidden + j] + matrix.sum_of_parts<M>(sums, g * hidden + j, m);
                    load_unit(unit + tile.set * Q * hidden + j, hidden, p);
                    Cell::forward(x, u, before, p, after, kept);
                }
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    (i ? others + (i - 1) * hidden * M : now)[e] = after[i];
                    state[t * P * plane + tile.element(P, i, j, m)] = after[i];
                }
#pragma unroll
                for (int k = 0; k < K; ++k) gates[t * K * plane + tile.element(K, k, j, m)] = kept[k];
            }
            __syncthreads();
        }
        for (int e = threadIdx.x; e < hidden * M; e += BLOCK)
            for (int i = 0; i < P && e % M < tile.count; ++i)
                final[tile.element(P, i, e / M, e % M)] = (i ? others + (i - 1) * hidden * M : now)[e];
        __syncthreads();
    }
}

__device__ __forceinline__ void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh, const real* __restrict__ bias_hh,
    const real* __restrict__ unit, const real* __restrict__ initial, const long long* __restrict__ lengths,
    real* __restrict__ state, real* __restrict__ gates, real* __restrict__ final, int steps, int hidden,
    size_type sets, size_type batch, size_type walks, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    if (together(walks, batch))
        walk_tiles<WALKS_TOGETHER>(projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, steps,
                             hidden, sets, batch, walks, reverse, shared);
    else
        walk_tiles<1>(projected, weight_hh, bias_hh, unit, initial, lengths, state, gates, final, steps,
                      hidden, sets, batch, walks, reverse, shared);
}
