// The way back of cells without recurrent gates. A unit sees its own states alone: sets are units, and `hidden` is 1. A thread
// takes a chunk of an element of (batch, sets).

const int BLOCK = 256;

// Steps whose numbers are read before the last of them is worked on.
const int AHEAD = 4;

__device__ __forceinline__ void walk_back(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial, const real*,
    const real* __restrict__ unit, const real* __restrict__ gradient, const real* __restrict__ boundary,
    real* __restrict__ delta, real* __restrict__ entering, size_type hidden, const Chunks& chunks, int per_step)
{
    const size_type plane = hidden * chunks.walks, sets = chunks.sets;
    GRID_STRIDE(item, chunks.reduced() * plane) {
        const size_type piece = item / plane, b = item % plane / sets, set = item % sets, length = chunks.lengths[b];
        const Span whole = chunks.whole(piece);
        real p[Q_EXTENT], g[P];
        load_unit(unit + set * Q, 1, p);
        const auto element = [&](int rows, int row) { return (b * rows + row) * sets + set; };
#pragma unroll
        for (int i = 0; i < P; ++i) g[i] = boundary[piece * P * plane + element(P, i)];
#pragma unroll 1
        for (size_type last = whole.end - 1; last >= whole.begin; last -= AHEAD) {
            real kept[AHEAD][K_EXTENT], before[AHEAD][P], after[AHEAD][P], by_output[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = max(last - a, whole.begin), t = chunks.time(s);
                const real* const earlier = s ? state + chunks.time(s - 1) * P * plane : initial;
#pragma unroll
                for (int k = 0; k < K; ++k) kept[a][k] = gates[t * K * plane + element(K, k)];
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    before[a][i] = Cell::reads_before >> i & 1 ? earlier[element(P, i)] : real(0);
                    after[a][i] = Cell::reads_after >> i & 1 ? state[t * P * plane + element(P, i)] : real(0);
                }
                by_output[a] = per_step ? gradient[t * plane + element(1, 0)] : real(0);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = last - a;
                if (s < whole.begin) continue;
                const size_type t = chunks.time(s);
                real by_x[G] = {}, by_u[U_EXTENT], by_before[P], by_p[Q_EXTENT] = {};
                if (t < length) {
                    g[0] += by_output[a];
                    Cell::backward(g, kept[a], after[a], before[a], p, by_x, by_u, by_before, by_p);
#pragma unroll
                    for (int i = 0; i < P; ++i) g[i] = by_before[i];
                }
                real* const put = delta + t * D * plane + element(D, 0);
#pragma unroll
                for (int d = 0; d < D; ++d) put[d * sets] = d < G ? by_x[d] : by_p[d - G];
            }
        }
#pragma unroll
        for (int i = 0; i < P; ++i) entering[piece * P * plane + element(P, i)] = g[i];
    }
}
