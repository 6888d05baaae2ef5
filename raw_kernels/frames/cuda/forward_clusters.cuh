// The way forward of a cluster. A thread takes a unit of a sample, with all its gates; its inputs are fetched some steps
// early.

__device__ __forceinline__ void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh, const real* __restrict__ bias_hh,
    const real* __restrict__ unit, const real* __restrict__ initial, const long long* __restrict__ lengths,
    real* __restrict__ state, real* __restrict__ gates, real* __restrict__ final, int steps, int hidden,
    size_type batch, int reverse)
{
    const Group group(blockIdx.x / CLUSTER, batch);
    const Place place(hidden, group);
    const Walk own = group.walk(place.sample, hidden);
    Stage<G, AHEAD> stage;
    const size_type plane = hidden * batch, square = (size_type)hidden * hidden;
    const size_type o = own.start(P) + place.unit;
    Weights weights;
    weights.load(weight_hh, square, hidden, 1, hidden, place.first, place.lane);
    real* const held = buffers();
    const Shared shared(held);
#pragma unroll 1
    for (int e = threadIdx.x; e < SAMPLES * VECTOR; e += BLOCK) {
        const int m = e / VECTOR, j = e % VECTOR;
        const bool is_there = j < hidden && m < group.count;
        held[e] = is_there ? initial[group.walk(m, hidden).start(P) + j] : real(0);
        held[SAMPLES * VECTOR + e] = real(0);
    }
    real bias[R], p[Q_EXTENT], now[P];
#pragma unroll
    for (int g = 0; g < R; ++g) bias[g] = bias_hh[g * hidden + place.unit];
    load_unit(unit + place.unit, hidden, p);
#pragma unroll
    for (int i = 0; i < P; ++i) now[i] = initial[i * hidden + o];
    const auto length_of = [&](size_type sample) {
        return int(max(size_type(0), min(lengths[sample], size_type(steps))));
    };
    const int length = length_of(own.sample);
    int longest = 0;
    for (int m = 0; m < group.count; ++m) longest = max(longest, length_of(group.first + m));
    longest = same_in_warp(longest);
    const size_type first = reverse ? steps - 1 : 0, way = reverse ? -plane : plane;
    ForwardRows rows = {projected + first * G * plane + own.start(G) + place.unit, state + first * P * plane + o,
                        gates + first * K * plane + own.start(K) + place.unit, hidden, way, place.owns};
    if (reverse) rows.pad(now, steps - longest);
    const auto fetch = [&](int a, bool) { rows.fetch(stage, a); };
    stage.fill(longest, fetch);
    arrive_at_cluster();
    wait_for_cluster();
#pragma unroll 1
    for (int s = 0, turn = 0; s < longest; ++s, turn ^= 1) {
        real x[G], sums[SHARES][R] = {}, u[R], after[P], saved[K_EXTENT];
        weights.multiply(held + turn * SAMPLES * VECTOR, 0, VECTOR, place.lane, sums);
        share_out(sums, place.lane, 0xffffffffu);
        stage.template wait<AHEAD - 1>();
#pragma unroll
        for (int g = 0; g < G; ++g) x[g] = stage.read(turn, g);
#pragma unroll
        for (int g = 0; g < R; ++g) u[g] = sums[0][g] + bias[g];
        Cell::forward(x, u, now, p, after, saved);
        const bool moves = (reverse ? longest - 1 - s : s) < length;
#pragma unroll
        for (int i = 0; i < P; ++i) now[i] = moves ? after[i] : now[i];
#pragma unroll
        for (int k = 0; k < K; ++k) saved[k] = moves ? saved[k] : real(0);
        const int first = (1 - turn) * SAMPLES;
        if (place.owns) held[(first + place.sample) * VECTOR + place.unit] = now[0];
        hand_on<SAMPLES>(shared, first);
        arrive_at_cluster();
        // After the arrival, which waits for accesses to memory that were made before.
        stage.refill(turn, longest - s, fetch);
        rows.put(now, saved);
        wait_for_cluster();
    }
    if (!reverse) rows.pad(now, steps - longest);
    if (place.owns) {
#pragma unroll
        for (int i = 0; i < P; ++i) final[i * hidden + o] = now[i];
    }
}
