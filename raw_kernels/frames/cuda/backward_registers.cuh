// The way back where threads hold weights. A thread takes a unit, with a column of each recurrent gate's weights; what
// it reads is fetched some steps early.

// Whether there are gradients by each step's output is known to the text where PER_STEP is false, or `per_step` a
// constant.
template <bool PER_STEP>
__device__ __forceinline__ void walk_steps(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks, bool per_step)
{
    __shared__ __align__(16) real shared[WALKS][2][R][HELD];
    const Place place(hidden);
    constexpr int AHEAD = steps_ahead(BackwardRows::ROWS);
    Stage<BackwardRows::ROWS, AHEAD> stage;
    const int row = place.unit;
    const size_type batch = chunks.batch, plane = hidden * batch, square = (size_type)hidden * hidden;
    real* const held = shared[place.walk][0][0];
    place.clear(held, 2 * R, hidden);
    place.wait();
    if (place.is_beyond(hidden)) return;
    Weights weights;
    const size_type items = chunks.reduced() * batch;
    for (size_type item = first_of(place.walk, items); item < items; item = next_of(item, items)) {
        const size_type piece = item / batch, b = item % batch;
        const Walk own = {b, hidden};
        const size_type o = own.start(P) + row;
        weights.load(weight_hh + opaque(0), square, 1, hidden, hidden, place.first, place.lane);
        real p[Q_EXTENT], g[P];
        load_unit(unit + row, hidden, p);
#pragma unroll
        for (int i = 0; i < P; ++i) g[i] = boundary[piece * P * plane + i * hidden + o];
        const Span span = chunks.span(piece, b), whole = chunks.whole(piece);
        const int count = same_in_warp(int(max(size_type(0), span.end - span.begin)));
        const size_type last = chunks.time(whole.end - 1), way = chunks.reverse ? plane : -plane;
        DeltaRows deltas = {delta + last * D * plane + own.start(D) + row, hidden, way, place.owns};
        const size_type behind = count ? whole.end - span.end : whole.end - whole.begin;
        deltas.pad(behind);
        const size_type begin = last * plane + behind * way;
        BackwardRows rows = {gates + (begin * K + own.start(K) + row), state + (begin * P + o),
                             gradient + (begin + own.start(1) + row), initial + o, hidden, way};
        real now[P];
#pragma unroll
        for (int i = 0; i < P; ++i)
            now[i] = Cell::reads_before & Cell::reads_after & 1 << i && count ? rows.state[i * hidden] : real(0);
        const bool has_first = span.begin == 0;
        const auto fetch = [&](int a, bool last) { rows.fetch(stage, a, has_first && last, PER_STEP && per_step); };
        real saved[K_EXTENT], read[P], step_gradient = 0;
        const auto take = [&](int a) {
#pragma unroll
            for (int k = 0; k < K; ++k) saved[k] = stage.read(a, k);
#pragma unroll
            for (int i = 0; i < P; ++i)
                if ((Cell::reads_before | Cell::reads_after) >> i & 1) read[i] = stage.read(a, K + i);
            if (PER_STEP) step_gradient = per_step ? stage.read(a, K + P) : real(0);
        };
        stage.fill(count, fetch);
        if constexpr (OWN == 1) {
            stage.template wait<AHEAD - 2>();
            take(0);
        }
        for_each_step<AHEAD>(count, [&](int a, int turn, int left) {
            if constexpr (OWN > 1) {
                stage.template wait<AHEAD - 1>();
                take(a);
                stage.refill(a, left, fetch);
            }
            real before[P], after[P], by_x[G], by_u[U_EXTENT], by_before[P], by_p[Q_EXTENT];
#pragma unroll
            for (int i = 0; i < P; ++i) {
                const bool reads_before = Cell::reads_before >> i & 1, reads_after = Cell::reads_after >> i & 1;
                before[i] = reads_before ? read[i] : real(0);
                after[i] = !reads_after ? real(0) : reads_before ? now[i] : read[i];
                now[i] = before[i];
            }
            if (PER_STEP) g[0] += step_gradient;
            Cell::backward(g, saved, after, before, p, by_x, by_u, by_before, by_p);
            real* const by_sums = held + turn * R * HELD;
            for_each_sum(by_x, by_u, [&](int sum, real by_sum) {
                if (place.owns) by_sums[sum * HELD + row] = by_sum;
            });
            real by_rows[D];
#pragma unroll
            for (int d = 0; d < D; ++d) by_rows[d] = delta_row(by_x, by_u, by_p, d);
            deltas.put(by_rows);
            place.wait();
            if (OWN == 1) take((a + 1) % AHEAD);
            real sums[SHARES][1] = {};
            weights.multiply(by_sums, HELD, 0, place.lane, sums);
            if constexpr (OWN == 1) {
                stage.refill(a, left, fetch);
                stage.template wait<AHEAD - 2>();
            }
            share_out(sums, place.lane, place.mask());
            g[0] = by_before[0] + sums[0][0];
#pragma unroll
            for (int i = 1; i < P; ++i) g[i] = by_before[i];
        });
        deltas.pad(whole.end - whole.begin - behind - count);
        if (place.owns) {
#pragma unroll
            for (int i = 0; i < P; ++i) entering[piece * P * plane + i * hidden + o] = g[i];
        }
        place.wait();
    }
}

// One text serves both cases where a place has several units: it is long, and a step waits for no gradient.
__device__ __forceinline__ void walk_back(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks, bool per_step)
{
    if (OWN > 1)
        walk_steps<true>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, hidden, chunks,
                         per_step);
    else if (per_step)
        walk_steps<true>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, hidden, chunks,
                         true);
    else
        walk_steps<(OWN > 1)>(state, gates, initial, weight_hh, unit, gradient, boundary, delta, entering, hidden,
                              chunks, false);
}
