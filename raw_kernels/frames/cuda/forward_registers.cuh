// The way forward where threads hold weights. A thread takes a unit, with all its gates; its inputs are fetched some
// steps early.

__device__ __forceinline__ void walk(
    const real* __restrict__ projected, const real* __restrict__ weight_hh, const real* __restrict__ bias_hh,
    const real* __restrict__ unit, const real* __restrict__ initial, const long long* __restrict__ lengths,
    real* __restrict__ state, real* __restrict__ gates, real* __restrict__ final, int steps, int hidden,
    size_type batch, int reverse)
{
    __shared__ __align__(16) real shared[WALKS][2][HELD];
    const Place place(hidden);
    constexpr int AHEAD = steps_ahead(G);
    Stage<G, AHEAD> stage;
    const size_type plane = hidden * batch, square = (size_type)hidden * hidden;
    real* const held = shared[place.walk][0];
    const int row = place.unit;
    place.clear(held, 2, hidden);
    place.wait();
    if (place.is_beyond(hidden)) return;
    Weights weights;
    for (size_type number = first_of(place.walk, batch); number < batch; number = next_of(number, batch)) {
        const Walk own = {number, hidden};
        const size_type o = own.start(P) + row;
        weights.load(weight_hh + opaque(0), square, hidden, 1, hidden, place.first, place.lane);
        real bias[R], p[Q_EXTENT], now[P];
#pragma unroll
        for (int g = 0; g < R; ++g)
            bias[g] = !place.owns ? real(0) : bias_hh[g * hidden + row];
        load_unit(unit + row, hidden, p);
#pragma unroll
        for (int i = 0; i < P; ++i) now[i] = initial[i * hidden + o];
        const int length = same_in_warp(int(max(size_type(0), min(lengths[own.sample], size_type(steps)))));
        const size_type first = reverse ? steps - 1 : 0, way = reverse ? -plane : plane;
        ForwardRows rows = {projected + first * G * plane + own.start(G) + row, state + first * P * plane + o,
                            gates + first * K * plane + own.start(K) + row, hidden, way, place.owns};
        if (reverse) rows.pad(now, steps - length);
        if (place.owns) held[row] = now[0];
        place.wait();
        const auto fetch = [&](int a, bool) { rows.fetch(stage, a); };
        stage.fill(length, fetch);
        stage.wait<AHEAD - 1>();
        for_each_step<AHEAD>(length, [&](int a, int turn, int left) {
            real x[G], sums[SHARES][R] = {}, u[R], after[P], saved[K_EXTENT];
            const auto take = [&] {
#pragma unroll
                for (int g = 0; g < G; ++g) x[g] = stage.read(a, g);
            };
            if (OWN == 1) take();
#pragma unroll
            for (int g = 0; g < R; ++g) sums[0][g] = OWN == 1 ? bias[g] : real(0);
            weights.multiply(held + turn * HELD, 0, 0, place.lane, sums);
            share_out(sums, place.lane, place.mask());
            if (OWN > 1) {
                stage.wait<AHEAD - 1>();
                take();
            }
            stage.refill(a, left, fetch);
            if (OWN == 1) stage.wait<AHEAD - 1>();
#pragma unroll
            for (int g = 0; g < R; ++g) u[g] = OWN == 1 ? sums[0][g] : sums[0][g] + bias[g];
            Cell::forward(x, u, now, p, after, saved);
#pragma unroll
            for (int i = 0; i < P; ++i) now[i] = after[i];
            if (place.owns) held[(1 - turn) * HELD + row] = now[0];
            rows.put(now, saved);
            place.wait();
        });
        if (!reverse) rows.pad(now, steps - length);
        if (place.owns) {
#pragma unroll
            for (int i = 0; i < P; ++i) final[i * hidden + o] = now[i];
        }
    }
}
