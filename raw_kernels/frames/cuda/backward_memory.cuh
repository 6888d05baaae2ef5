// The way back with weights in memory. A thread takes a unit of one of the samples at a time.

template <bool PER_STEP, int M>
__device__ __forceinline__ void walk_tiles(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks, real* shared)
{
    const size_type batch = chunks.batch, plane = hidden * chunks.walks, tiles = tile_count(chunks.sets, batch, M);
    Matrix matrix = {hidden, R * hidden, 1, hidden, nullptr};
    real *const deltas = shared, *const carried = deltas + padded(R * hidden) * M;
    real* const sums = carried + P * hidden * M;
    for (int e = threadIdx.x; e < padded(R * hidden) * M; e += BLOCK) deltas[e] = real(0);
    for (size_type item = blockIdx.x; item < chunks.reduced() * tiles; item += gridDim.x) {
        const size_type piece = item / tiles;
        const Tile tile(item % tiles, hidden, chunks.sets, batch, M);
        const Span whole = chunks.whole(piece);
        matrix.values = weight_hh + tile.set * R * hidden * hidden;
        for (int e = threadIdx.x; e < hidden * M; e += BLOCK)
            for (int i = 0; i < P && e % M < tile.count; ++i)
                carried[i * hidden * M + e] = boundary[piece * P * plane + tile.element(P, i, e / M, e % M)];
        __syncthreads();
        for (size_type s = whole.end - 1; s >= whole.begin; --s) {
            const size_type t = chunks.time(s);
            const real* const earlier = s ? state + chunks.time(s - 1) * P * plane : initial;
            for (int e = threadIdx.x; e < hidden * M; e += BLOCK) {
                const int j = e / M, m = e % M;
                if (m >= tile.count) continue;
                const size_type b = tile.first + m;
                real kept[K_EXTENT], before[P], after[P], g[P], p[Q_EXTENT];
                real by_x[G] = {}, by_u[U_EXTENT] = {}, by_before[P], by_p[Q_EXTENT] = {};
                if (t < chunks.lengths[b]) {
#pragma unroll
                    for (int k = 0; k < K; ++k) kept[k] = gates[t * K * plane + tile.element(K, k, j, m)];
#pragma unroll
                    for (int i = 0; i < P; ++i) {
                        const size_type o = tile.element(P, i, j, m);
                        before[i] = Cell::reads_before >> i & 1 ? earlier[o] : real(0);
                        after[i] = Cell::reads_after >> i & 1 ? state[t * P * plane + o] : real(0);
                        g[i] = carried[i * hidden * M + e];
                    }
                    if (PER_STEP) g[0] += gradient[t * plane + tile.element(1, 0, j, m)];
                    load_unit(unit + tile.set * Q * hidden + j, hidden, p);
                    Cell::backward(g, kept, after, before, p, by_x, by_u, by_before, by_p);
#pragma unroll
                    for (int i = 0; i < P; ++i) carried[i * hidden * M + e] = by_before[i];
                }
                for_each_sum(by_x, by_u, [&](int sum, real by_sum) { deltas[(sum * hidden + j) * M + m] = by_sum; });
                real* const put = delta + t * D * plane + tile.element(D, 0, j, m);
#pragma unroll
                for (int d = 0; d < D; ++d) put[d * tile.width] = delta_row(by_x, by_u, by_p, d);
            }
            __syncthreads();
            matrix.multiply<M>(deltas, sums);
            __syncthreads();
            for (int e = threadIdx.x; e < hidden * M; e += BLOCK)
                if (e % M < tile.count) carried[e] += matrix.sum_of_parts<M>(sums, e / M, e % M);
        }
        for (int e = threadIdx.x; e < hidden * M; e += BLOCK)
            for (int i = 0; i < P && e % M < tile.count; ++i)
                entering[piece * P * plane + tile.element(P, i, e / M, e % M)] = carried[i * hidden * M + e];
        __syncthreads();
    }
}

template <bool PER_STEP>
__device__ __forceinline__ void walk_samples(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks)
{
    extern __shared__ __align__(16) real shared[];
    if (together(chunks.reduced() * chunks.walks, chunks.batch))
        walk_tiles<PER_STEP, WALKS_TOGETHER>(state, gates, initial, weight_hh, unit, gradient, boundary, delta,
                                       entering, hidden, chunks, shared);
    else
        walk_tiles<PER_STEP, 1>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering,
                                hidden, chunks, shared);
}

__device__ __forceinline__ void walk_back(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks, bool per_step)
{
    if (per_step)
        walk_samples<true>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, hidden,
                           chunks);
    else
        walk_samples<false>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, hidden,
                            chunks);
}
