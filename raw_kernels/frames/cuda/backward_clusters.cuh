// The way back of a cluster. A thread takes a unit of a sample, with a column of each recurrent gate's weights; what it
// reads is fetched some steps early.

__device__ __forceinline__ void walk_back(
    const real* __restrict__ state, const real* __restrict__ gates, const real* __restrict__ initial,
    const real* __restrict__ weight_hh, const real* __restrict__ unit, const real* __restrict__ gradient,
    const real* __restrict__ boundary, real* __restrict__ delta, real* __restrict__ entering, int hidden,
    const Chunks& chunks, bool per_step)
{
    const size_type batch = chunks.batch, plane = hidden * batch;
    const size_type groups = (batch + SAMPLES - 1) / SAMPLES, number = blockIdx.x / CLUSTER;
    const size_type piece = number / groups, square = (size_type)hidden * hidden;
    const Group group(number % groups, batch);
    const Place place(hidden, group);
    const Walk own = group.walk(place.sample, hidden);
    Stage<BackwardRows::ROWS, AHEAD> stage;
    const size_type o = own.start(P) + place.unit;
    Weights weights;
    weights.load(weight_hh, square, 1, hidden, hidden, place.first, place.lane);
    real* const held = buffers();
    const Shared shared(held);
#pragma unroll 1
    for (int e = threadIdx.x; e < 2 * SAMPLES * R * VECTOR; e += BLOCK) held[e] = real(0);
    real p[Q_EXTENT], g[P];
    load_unit(unit + place.unit, hidden, p);
#pragma unroll
    for (int i = 0; i < P; ++i) g[i] = boundary[piece * P * plane + i * hidden + o];
    // The steps at which any sample is not padded.
    const Span span = chunks.span(piece, own.sample), whole = chunks.whole(piece);
    Span moving = {whole.end, whole.begin};
    for (int m = 0; m < group.count; ++m) {
        const Span one = chunks.span(piece, group.first + m);
        if (one.begin < one.end) moving = {min(moving.begin, one.begin), max(moving.end, one.end)};
    }
    const int count = same_in_warp(int(max(size_type(0), moving.end - moving.begin)));
    const size_type last = chunks.time(whole.end - 1), way = chunks.reverse ? plane : -plane;
    DeltaRows deltas = {delta + last * D * plane + own.start(D) + place.unit, hidden, way, place.owns};
    const size_type behind = count ? whole.end - moving.end : whole.end - whole.begin;
    deltas.pad(behind);
    const size_type begin = last * plane + behind * way;
    BackwardRows rows = {gates + (begin * K + own.start(K) + place.unit), state + (begin * P + o),
                         gradient + (begin + own.start(1) + place.unit), initial + o, hidden, way};
    real now[P];
#pragma unroll
    for (int i = 0; i < P; ++i)
        now[i] = Cell::reads_before & Cell::reads_after & 1 << i && count ? rows.state[i * hidden] : real(0);
    const bool has_first = moving.begin == 0;
    const auto fetch = [&](int a, bool last) { rows.fetch(stage, a, has_first && last, per_step); };
    stage.fill(count, fetch);
    arrive_at_cluster();
    wait_for_cluster();
#pragma unroll 1
    for (int s = 0, turn = 0; s < count; ++s, turn ^= 1) {
        real saved[K_EXTENT], before[P], after[P], by_x[G], by_u[U_EXTENT], by_before[P], by_p[Q_EXTENT], later[P];
        stage.template wait<AHEAD - 1>();
#pragma unroll
        for (int k = 0; k < K; ++k) saved[k] = stage.read(turn, k);
#pragma unroll
        for (int i = 0; i < P; ++i) {
            const bool reads_before = Cell::reads_before >> i & 1, reads_after = Cell::reads_after >> i & 1;
            const real read = reads_before || reads_after ? stage.read(turn, K + i) : real(0);
            before[i] = reads_before ? read : real(0);
            after[i] = !reads_after ? real(0) : reads_before ? now[i] : read;
            now[i] = before[i];
            later[i] = g[i];
        }
        if (per_step) g[0] += stage.read(turn, K + P);
        Cell::backward(g, saved, after, before, p, by_x, by_u, by_before, by_p);
        const size_type step = moving.end - 1 - s;
        const bool moves = step >= span.begin && step < span.end;
#pragma unroll
        for (int i = 0; i < P; ++i) by_before[i] = moves ? by_before[i] : later[i];
        real by_rows[D];
#pragma unroll
        for (int d = 0; d < D; ++d) by_rows[d] = moves ? delta_row(by_x, by_u, by_p, d) : real(0);
        real* const by_sums = held + turn * SAMPLES * R * VECTOR;
        for_each_sum(by_rows, by_rows + G, [&](int sum, real by_sum) {
            if (place.owns) by_sums[(place.sample * R + sum) * VECTOR + place.unit] = by_sum;
        });
        hand_on<SAMPLES * R>(shared, turn * SAMPLES * R);
        arrive_at_cluster();
        // After the arrival, which waits for accesses to memory that were made before.
        stage.refill(turn, count - s, fetch);
        deltas.put(by_rows);
        wait_for_cluster();
        real sums[SHARES][1] = {};
        weights.multiply(by_sums, VECTOR, R * VECTOR, place.lane, sums);
        share_out(sums, place.lane, 0xffffffffu);
        g[0] = by_before[0] + sums[0][0];
#pragma unroll
        for (int i = 1; i < P; ++i) g[i] = by_before[i];
    }
    deltas.pad(whole.end - whole.begin - behind - count);
    if (place.owns) {
#pragma unroll
        for (int i = 0; i < P; ++i) entering[piece * P * plane + i * hidden + o] = g[i];
    }
}
