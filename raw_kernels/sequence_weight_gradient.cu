// Partial sums of a weight's and a bias's gradient over steps and samples: of delta times value, and of
// delta. Part p takes the steps from p steps / parts on; the parts are added up afterwards, in order.
// Where `shifted`, the value of step s is that of step s - 1, and `initial` at step 0; step s is time
// t = s, or steps - 1 - s where `reverse`. Rows come in bands of one height, of which band n takes values of
// rows from n % sets * columns on: those of its set of weights.
//
// A block a part and tile of 32 x 32 outputs, 256 threads: tiles of 32 products' factors pass through
// shared memory, and a thread adds up 2 x 2 outputs.

#include "prelude.cuh"

const int TILE = 32;

extern "C" __global__ void sequence_weight_gradient(
    const real* __restrict__ delta,    // (steps, batch | delta_rows): `rows` rows from `first` on
    const real* __restrict__ values,   // (steps, batch | value_rows): its first sets * columns rows
    const real* __restrict__ initial,  // (batch | value_rows) if shifted else (0)
    real* __restrict__ weights,        // (parts, rows, columns) output only
    real* __restrict__ biases,         // (parts, rows) output only
    size_type steps, size_type delta_rows, size_type first, size_type rows, size_type bands, size_type sets,
    size_type value_rows, size_type columns, size_type batch, size_type parts, int shifted, int reverse)
{
    __shared__ real left[TILE][TILE + 1], right[TILE][TILE + 1];
    const size_type height = rows / bands, in_band = (height + TILE - 1) / TILE, down = bands * in_band;
    const size_type across = (columns + TILE) / TILE;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    const int y = threadIdx.x / 16 * 2, x = threadIdx.x % 16 * 2;
    for (size_type item = blockIdx.x; item < parts * down * across; item += gridDim.x) {
        const size_type part = item / (down * across);
        const size_type band = item / across % down / in_band, inner = item / across % in_band * TILE;
        const size_type top = band * height + inner, start = item % across * TILE;
        const size_type taken = band % sets * columns, count = height - inner;
        const size_type begin = steps * part / parts * batch, end = steps * (part + 1) / parts * batch;
        real total[2][2] = {{0, 0}, {0, 0}};
        for (size_type q = begin; q < end; q += TILE) {
            for (int i = group; i < TILE; i += 8) {
                const size_type place = q + i, k = start + lane;
                const bool within = place < end;
                left[i][lane] = within && lane < count ? delta[place * delta_rows + first + top + lane] : real(0);
                // Step 0, whose samples are the first or the last.
                const size_type sample = place - (reverse ? (steps - 1) * batch : 0);
                const bool from_initial = shifted && sample >= 0 && sample < batch;
                const size_type source = shifted ? (reverse ? place + batch : place - batch) : place;
                real value = 0;
                if (within && k < columns)
                    value = from_initial ? initial[sample * value_rows + taken + k]
                                         : values[source * value_rows + taken + k];
                right[i][lane] = within && k == columns ? real(1) : value;
            }
            __syncthreads();
            for (int i = 0; i < TILE; ++i) {
                const real a = left[i][y], c = left[i][y + 1], d = right[i][x], e = right[i][x + 1];
                total[0][0] += a * d;
                total[0][1] += a * e;
                total[1][0] += c * d;
                total[1][1] += c * e;
            }
            __syncthreads();
        }
        for (int i = 0; i < 2; ++i)
            for (int k = 0; k < 2; ++k) {
                const size_type row = part * rows + top + y + i, column = start + x + k;
                if (y + i < count && column < columns)
                    weights[row * columns + column] = total[i][k];
                else if (y + i < count && column == columns)
                    biases[row] = total[i][k];
            }
    }
}
