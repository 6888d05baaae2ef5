// The reduction of rnn_tanh's chunks for at most 24 units on tensor cores: rnn_tanh_reduce up to rounding.
//
// The columns of all maps are the rows of one tall matrix M, 16 of them per warp. A step replaces M by (M diag(d)) W_hh
// with d = 1 - h² of each row's sample. W_hh stays in registers. Of a tile's 8 inner indices, t stands for unit 2t and
// t + 4 for unit 2t + 1, so that a result is the next step's operand as it lies.

#include "prelude.cuh"
#include "powers.cuh"
#include "tensor.cuh"
#include "frames/cuda/chunks.cuh"

const int BLOCK = 128, TILES = 3, RENORMALISED = 8;

// A row of M: column `column` of map `map`; the column after the last one takes the steps' gradients in.
struct Row {
    size_type map, last, place;
    Span span;
    int column;
    bool exists, entering;

    __device__ __forceinline__ Row(const Chunks& chunks, size_type number, size_type rows, int width, int hidden)
        : map(number / width), span{0, 0}, column(int(number % width)), exists(number < rows)
    {
        const size_type chunk = map / chunks.batch + chunks.first, sample = map % chunks.batch;
        if (exists) span = chunks.span(chunk, sample);
        last = chunk * chunks.length + chunks.length - 1;
        place = (chunks.time(last) * chunks.batch + sample) * hidden;
        entering = column == hidden;
    }

    // Whether the row takes part in the step `back` before its chunk's last.
    __device__ __forceinline__ bool moves(size_type back) const
    {
        return last - back >= span.begin && last - back < span.end;
    }

    __device__ __forceinline__ bool is_scaled() const { return span.end > span.begin && !entering; }
};

// Sets values[k][i] to unit k * 8 + 2t + i of a row's step; zeros where there is none.
__device__ __forceinline__ void read_units(
    real (&values)[TILES][2], const real* __restrict__ from, size_type place, bool moves, int t, int hidden)
{
#pragma unroll
    for (int k = 0; k < TILES; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int unit = k * 8 + 2 * t + i;
            values[k][i] = moves && unit < hidden ? from[place + unit] : real(0);
        }
}

// ---- rnn_tanh_tf32_reduce ----

extern "C" __global__ void __launch_bounds__(BLOCK) rnn_tanh_tf32_reduce(
    const real* __restrict__ gates,         // (0): as rnn_tanh_reduce takes it; initial and unit likewise
    const real* __restrict__ state,         // (steps, batch | hidden): of rnn_tanh_forward
    const real* __restrict__ initial,       // (batch | hidden)
    const real* __restrict__ weight_hh,     // (hidden, hidden)
    const real* __restrict__ unit,          // (0)
    const real* __restrict__ gradient,      // (steps, batch | hidden) if per_step else (0): by each step's
                                            // output
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ maps,                // ((steps + chunk - 1) // chunk - first, batch, hidden, hidden)
                                            // output only, by columns, without their powers of two
    int* __restrict__ exponents,            // ((steps + chunk - 1) // chunk - first, batch, hidden) output
                                            // only, by column
    real* __restrict__ offsets,             // ((steps + chunk - 1) // chunk - first, batch | hidden)
                                            // if per_step else (0) output only
    size_type steps, size_type hidden, size_type batch, size_type chunk,
    size_type first, int per_step, int reverse)
{
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const int H = int(hidden), width = H + (per_step ? 1 : 0), g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const size_type rows = chunks.reduced() * batch * width, stride = (reverse ? 1 : -1) * batch * H;
    real high[TILES][TILES][2], low[TILES][TILES][2];
#pragma unroll
    for (int k = 0; k < TILES; ++k)
#pragma unroll
        for (int n = 0; n < TILES; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int from = k * 8 + 2 * t + i, to = n * 8 + g;
                const real weight = from < H && to < H ? weight_hh[from * H + to] : real(0);
                high[k][n][i] = tensor_part(weight);
                low[k][n][i] = tensor_part(weight - high[k][n][i]);
            }
    const size_type warps = (size_type)gridDim.x * (BLOCK / 32);
    for (size_type tile = (size_type)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; tile * 16 < rows; tile += warps) {
        Row both[2] = {{chunks, tile * 16 + g, rows, width, H}, {chunks, tile * 16 + g + 8, rows, width, H}};
        real m[TILES][4], next[2][TILES][2];
        int powers[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < TILES; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                m[n][i] = n * 8 + 2 * t + i % 2 == both[i / 2].column && !both[i / 2].entering ? real(1) : real(0);
#pragma unroll
        for (int r = 0; r < 2; ++r) read_units(next[r], state, both[r].place, both[r].moves(0), t, H);
#pragma unroll 1
        for (size_type back = 0; back < chunk; ++back) {
            real now[2][TILES][2], made[TILES][4] = {};
            bool moves[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                moves[r] = both[r].moves(back);
                real entering[TILES][2];
                read_units(entering, gradient, both[r].place, moves[r] && both[r].entering, t, H);
                both[r].place += stride;
#pragma unroll
                for (int k = 0; k < TILES; ++k)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const real h = next[r][k][i];
                        now[r][k][i] = (m[k][2 * r + i] + entering[k][i]) * (real(1) - h * h);
                    }
                read_units(next[r], state, both[r].place, both[r].moves(back + 1), t, H);
            }
#pragma unroll
            for (int k = 0; k < TILES; ++k) {
                real above[4], below[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const real value = now[i % 2][k][i / 2];
                    above[i] = tensor_part(value);
                    below[i] = tensor_part(value - above[i]);
                }
#pragma unroll
                for (int n = 0; n < TILES; ++n) {
                    if (IN_PARTS) {
                        add_tile(made[n], below, high[k][n]);
                        add_tile(made[n], above, low[k][n]);
                    }
                    add_tile(made[n], above, high[k][n]);
                }
            }
#pragma unroll
            for (int n = 0; n < TILES; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) m[n][i] = moves[i / 2] ? made[n][i] : m[n][i];
            if ((back + 1) % RENORMALISED != 0 && back + 1 != chunk) continue;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                real largest = 0;
#pragma unroll
                for (int n = 0; n < TILES; ++n)
                    largest = max(largest, real(max(fabs(m[n][2 * r]), fabs(m[n][2 * r + 1]))));
                largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                const int exponent = both[r].is_scaled() ? exponent_of(largest) : 0;
                const real factor = power_of_two(-exponent, real(0));
                powers[r] += exponent;
#pragma unroll
                for (int n = 0; n < TILES; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i) m[n][2 * r + i] *= factor;
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (!both[r].exists) continue;
            const size_type map = both[r].map, column = map * H + both[r].column;
            real* const target = both[r].entering ? offsets + map * H : maps + column * H;
#pragma unroll
            for (int n = 0; n < TILES; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (n * 8 + 2 * t + i < H) target[n * 8 + 2 * t + i] = m[n][2 * r + i];
            if (t == 0 && !both[r].entering) exponents[column] = powers[r];
        }
    }
}
