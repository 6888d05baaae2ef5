// The reduction of cells without recurrent gates. A unit sees its own states alone: sets are units, and `hidden` is 1. A thread
// takes a chunk of an element of (batch, sets).

const int BLOCK = 256;

// A step back of one column.
__device__ __forceinline__ void step_back(const real* a, real* column)
{
    real d[P];
    Cell::enter(a, column);
    Cell::carry(a, column, d);
#pragma unroll
    for (int i = 0; i < P; ++i) column[i] = Cell::direct >> i & 1 ? d[i] : real(0);
}

__device__ __forceinline__ void reduce(const Reduction& given, real*)
{
    const Chunks& chunks = given.chunks;
    const size_type walks = chunks.walks, sets = chunks.sets, plane = given.hidden * walks;
    GRID_STRIDE(item, chunks.reduced() * plane) {
        const size_type piece = item / plane, b = item % plane / sets, set = item % sets;
        const Span span = chunks.span(piece + chunks.first, b);
        const Walk walk(set, b, 1, sets);
        real columns[P][P], own[P] = {};
        int powers[P] = {}, since = 0;
#pragma unroll
        for (int c = 0; c < P; ++c)
#pragma unroll
            for (int i = 0; i < P; ++i) columns[c][i] = c == i ? real(1) : real(0);
#pragma unroll 1
        for (size_type s = span.end - 1; s >= span.begin; --s) {
            const Step step(given, int(s), walk);
            real rows[ROWS], a[A_EXTENT];
            step.read(0, rows);
            step.coefficients(0, rows, a);
            if (given.per_step) {
                own[0] += *given.step_gradient(s, walk);
                step_back(a, own);
            }
#pragma unroll
            for (int c = 0; c < P; ++c) step_back(a, columns[c]);
            if (++since < RENORMALISED && s != span.begin) continue;
            since = 0;
#pragma unroll
            for (int c = 0; c < P; ++c) {
                real largest = 0;
#pragma unroll
                for (int i = 0; i < P; ++i) largest = max(largest, real(fabs(columns[c][i])));
                const int exponent = exponent_of(largest);
                const real factor = power_of_two(-exponent, real(0));
#pragma unroll
                for (int i = 0; i < P; ++i) columns[c][i] *= factor;
                powers[c] += exponent;
            }
        }
        const size_type map = piece * walks + set * chunks.batch + b;
#pragma unroll
        for (int c = 0; c < P; ++c) {
            given.exponents[map * P + c] = powers[c];
#pragma unroll
            for (int i = 0; i < P; ++i) given.maps[(map * P + c) * P + i] = columns[c][i];
        }
        if (given.per_step) {
#pragma unroll
            for (int i = 0; i < P; ++i) given.offsets[piece * P * plane + walk.start(P) + i * sets] = own[i];
        }
    }
}
