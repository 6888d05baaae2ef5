// The way forward of cells without recurrent gates. A unit sees its own states alone: sets are units, and `hidden` is 1. A thread
// takes an element of (batch, sets).

const int BLOCK = 256;

// Steps whose inputs are read before the first of them is worked on.
const int AHEAD = 4;

__device__ __forceinline__ void walk(
    const real* __restrict__ projected, const real*, const real*, const real* __restrict__ unit,
    const real* __restrict__ initial, const long long* __restrict__ lengths, real* __restrict__ state,
    real* __restrict__ gates, real* __restrict__ final, size_type steps, size_type hidden, size_type sets, size_type,
    size_type walks, int reverse)
{
    const size_type plane = hidden * walks;
    GRID_STRIDE(o, plane) {
        const size_type b = o / sets, length = lengths[b], set = o % sets;
        real p[Q_EXTENT], now[P];
        load_unit(unit + set * Q, 1, p);
        const auto element = [&](int rows, int row) { return (b * rows + row) * sets + set; };
#pragma unroll
        for (int i = 0; i < P; ++i) now[i] = initial[element(P, i)];
#pragma unroll 1
        for (size_type begin = 0; begin < steps; begin += AHEAD) {
            real x[AHEAD][G];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = min(begin + a, steps - 1), t = reverse ? steps - 1 - s : s;
#pragma unroll
                for (int g = 0; g < G; ++g) x[a][g] = projected[t * G * plane + element(G, g)];
            }
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const size_type s = begin + a, t = reverse ? steps - 1 - s : s;
                if (s >= steps) continue;
                real after[P], kept[K_EXTENT] = {};
                const bool inside = t < length;
                if (inside) Cell::forward(x[a], nullptr, now, p, after, kept);
#pragma unroll
                for (int i = 0; i < P; ++i) {
                    if (inside) now[i] = after[i];
                    state[t * P * plane + element(P, i)] = now[i];
                }
#pragma unroll
                for (int k = 0; k < K; ++k) gates[t * K * plane + element(K, k)] = kept[k];
            }
        }
#pragma unroll
        for (int i = 0; i < P; ++i) final[element(P, i)] = now[i];
    }
}
