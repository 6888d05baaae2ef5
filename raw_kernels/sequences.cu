// Sequences of steps and samples: layout changes, products with a matrix, and weight gradients.

#include "prelude.cuh"

// ---- sequence_gather ----

// Sequences from a layer's layout to that of the scans over time. What lies behind a
// sample's end is 0, whatever it was.
extern "C" __global__ void sequence_gather(
    const real* __restrict__ outside,       // (batch, steps, total): (steps, batch, total) where by_time
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ inside,              // (steps, batch | features) output only, features from `offset`
                                            // on
    size_type steps, size_type features, size_type batch, size_type total, size_type offset, int by_time)
{
    GRID_STRIDE(item, steps * features * batch) {
        const size_type f = item % features, b = item / features % batch, t = item / features / batch;
        const size_type place = by_time ? t * batch + b : b * steps + t;
        inside[item] = t < lengths[b] ? outside[place * total + offset + f] : real(0);
    }
}

// ---- sequence_scatter ----

// Sequences from the layout of the scans over time to a layer's. What lies behind a sample's end is 0.
extern "C" __global__ void sequence_scatter(
    const real* __restrict__ inside,        // (steps, batch | rows): its first `features` rows
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ outside,             // (batch, steps, total) input and output, features from
                                            // `offset` on are written: (steps, batch, total) where by_time
    size_type steps, size_type rows, size_type features, size_type batch, size_type total,
    size_type offset, int by_time)
{
    GRID_STRIDE(item, steps * features * batch) {
        const size_type f = item % features, b = item / features % batch, t = item / features / batch;
        const size_type place = by_time ? t * batch + b : b * steps + t;
        outside[place * total + offset + f] =
            t < lengths[b] ? inside[(t * batch + b) * rows + f] : real(0);
    }
}

// ---- sequence_project ----

// One matrix times the values of every step and sample: out_t = W values_t + bias, or Wᵀ values_t + bias
// where `transposed`. A thread an output; a matrix that fits lies in shared memory, neighbouring outputs side by side.

const int STAGED = 32 * 1024 / int(sizeof(real));

extern "C" __global__ void sequence_project(
    const real* __restrict__ values,  // (steps, batch | rows): its first `inputs` rows
    const real* __restrict__ weight,  // (outputs, inputs): (inputs, outputs) where transposed
    const real* __restrict__ bias,    // (outputs) if biased else (0)
    real* __restrict__ out,           // (steps, batch | outputs) output only
    size_type steps, size_type rows, size_type inputs, size_type outputs, size_type batch,
    int transposed, int biased)
{
    __shared__ real staged[STAGED];
    const size_type by_input = transposed ? outputs : 1, by_output = transposed ? 1 : inputs;
    const bool fits = outputs * inputs <= STAGED;
    const int width = int(outputs), depth = int(inputs);
    for (int e = threadIdx.x; fits && e < width * depth; e += blockDim.x)
        staged[transposed ? e : e % depth * width + e / depth] = weight[e];
    __syncthreads();
    GRID_STRIDE(item, steps * outputs * batch) {
        const size_type o = item % outputs;
        const real* const value = values + item / outputs * rows;
        real sum = biased ? bias[o] : real(0);
        if (fits) {
#pragma unroll 4
            for (int i = 0; i < depth; ++i) sum += staged[i * width + int(o)] * value[i];
        } else {
            const real* const entry = weight + o * by_output;
            for (size_type i = 0; i < inputs; ++i) sum += entry[i * by_input] * value[i];
        }
        out[item] = sum;
    }
}

// ---- sequence_weight_gradient ----

// Partial sums of a weight's and a bias's gradient over steps and samples: of delta times value, and of
// delta. Part p takes the steps from p steps / parts on; the parts are added up afterwards, in order.
// Where `shifted`, the value of step s is that of step s - 1, and `initial` at step 0; step s is time
// t = s, or steps - 1 - s where `reverse`.
//
// A block a part and tile of 32 x 32 outputs, 256 threads: tiles of 32 products' factors pass through
// shared memory, and a thread adds up 2 x 2 outputs.

const int TILE = 32;

extern "C" __global__ void sequence_weight_gradient(
    const real* __restrict__ delta,    // (steps, batch | delta_rows): `rows` rows from `first` on
    const real* __restrict__ values,   // (steps, batch | value_rows): its first `columns` rows
    const real* __restrict__ initial,  // (batch | value_rows) if shifted else (0)
    real* __restrict__ weights,        // (parts, rows, columns) output only
    real* __restrict__ biases,         // (parts, rows) output only
    size_type steps, size_type delta_rows, size_type first, size_type rows, size_type value_rows,
    size_type columns, size_type batch, size_type parts, int shifted, int reverse)
{
    __shared__ real left[TILE][TILE + 1], right[TILE][TILE + 1];
    const size_type down = (rows + TILE - 1) / TILE, across = (columns + TILE) / TILE;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
    const int y = threadIdx.x / 16 * 2, x = threadIdx.x % 16 * 2;
    for (size_type item = blockIdx.x; item < parts * down * across; item += gridDim.x) {
        const size_type part = item / (down * across);
        const size_type top = item / across % down * TILE, start = item % across * TILE, count = rows - top;
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
                    value = from_initial ? initial[sample * value_rows + k]
                                         : values[source * value_rows + k];
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

// ---- sequence_gradients ----

#include "packs.cuh"
#include "copies.cuh"

// Partial sums of all gradients by the weights of one direction of a recurrent layer, by one read of its deltas, states
// and inputs: over steps and samples q, delta[q] times (the state before, the input, 1). Part p takes the pieces of
// `staged` steps and samples from p pieces / parts on; sequence_gradient_sums adds up the parts.
//
// A block takes a part. Its threads hold all sums, TILE x TILE each, and where that takes few of them, others take other
// q. STAGES pieces are on their way to shared memory.

const int TILE = 4, STAGES = 3, THREADS = 512;

struct __align__(16) Four {
    real values[TILE];
};

// The multiple of TILE that holds `count`.
__device__ __forceinline__ int padded(int count) { return (count + TILE - 1) / TILE * TILE; }

// Starts the copies of `count` rows of so many columns, `apart` there and `to_apart` here.
__device__ __forceinline__ void copy_rows(
    real* to, int to_apart, const real* from, size_type apart, int columns, int count)
{
    const unsigned long long places = (unsigned long long)to | (unsigned long long)from;
    if (columns % PACK == 0 && apart % PACK == 0 && places % 16 == 0) {
        const int packs = columns / PACK;
        for (int e = threadIdx.x; e < count * packs; e += blockDim.x) {
            const int row = e / packs, pack = e % packs;
            copy_ahead(reinterpret_cast<Pack*>(to + row * to_apart) + pack,
                       reinterpret_cast<const Pack*>(from + row * apart) + pack);
        }
        return;
    }
    for (int e = threadIdx.x; e < count * columns; e += blockDim.x) {
        const int row = e / columns, column = e % columns;
        copy_ahead(to + row * to_apart + column, from + row * apart + column);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sequence_gradients(
    const real* __restrict__ delta,    // (steps, batch | delta_rows)
    const real* __restrict__ state,    // (steps, batch | state_rows): its first `hidden` rows
    const real* __restrict__ initial,  // (batch | state_rows): before step 0
    const real* __restrict__ values,   // (steps, batch | value_rows): its first `inputs` rows
    real* __restrict__ partial,        // (parts, (delta_rows + 3) // 4 * 4, (hidden + inputs + 4) // 4 * 4) output only
    size_type steps, size_type delta_rows, size_type state_rows, size_type hidden, size_type value_rows,
    size_type inputs, size_type batch, size_type parts, size_type staged, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const int H = int(hidden), F = int(inputs), rows = padded(int(delta_rows)), columns = padded(H + F + 1);
    const int across = columns / TILE, tiles = rows / TILE * across, all = (tiles + 31) / 32 * 32;
    const int turn = int(threadIdx.x) / all, turns = int(blockDim.x) / all, own = int(threadIdx.x) % all;
    const int row = min(own, tiles - 1) / across * TILE, column = min(own, tiles - 1) % across * TILE;
    const int piece = int(staged) * (rows + columns);
    const size_type count = steps * batch, pieces = (count + staged - 1) / staged;
    for (size_type part = blockIdx.x; part < parts; part += gridDim.x) {
        const size_type first = pieces * part / parts, last = pieces * (part + 1) / parts;
        __syncthreads();
        // Rows behind the deltas, and columns behind the inputs, of which the first is 1.
        for (int e = threadIdx.x; e < STAGES * int(staged); e += blockDim.x) {
            real* const deltas = shared + e / int(staged) * piece + e % int(staged) * rows;
            real* const factors = shared + e / int(staged) * piece + int(staged) * rows + e % int(staged) * columns;
            for (int i = int(delta_rows); i < rows; ++i) deltas[i] = real(0);
            for (int i = H + F; i < columns; ++i) factors[i] = i == H + F ? real(1) : real(0);
        }
        const auto fetch = [&](size_type number) {
            if (number < last) {
                const size_type q = number * staged;
                const int here = int(min(staged, count - q));
                real* const deltas = shared + int((number - first) % STAGES) * piece;
                real* const factors = deltas + int(staged) * rows;
                copy_rows(deltas, rows, delta + q * delta_rows, delta_rows, int(delta_rows), here);
                // Of these the first step's lie at one end, and the state before it elsewhere.
                const size_type inner = reverse ? count - batch - q : batch - q;
                const int cut = int(max(size_type(0), min(size_type(here), inner)));
                const real* const begin = reverse ? state + (q + batch) * state_rows : initial + q * state_rows;
                const real* const behind = reverse ? initial + (q + cut - (count - batch)) * state_rows
                                                   : state + (q + cut - batch) * state_rows;
                copy_rows(factors, columns, begin, state_rows, H, cut);
                copy_rows(factors + cut * columns, columns, behind, state_rows, H, here - cut);
                copy_rows(factors + H, columns, values + q * value_rows, value_rows, F, here);
            }
            end_group();
        };
        real sums[TILE][TILE] = {};
        for (int s = 0; s < STAGES - 1; ++s) fetch(first + s);
        for (size_type number = first; number < last; ++number) {
            wait_for_groups<STAGES - 2>();
            __syncthreads();
            fetch(number + STAGES - 1);
            const int here = int(min(staged, count - number * staged));
            const real* const deltas = shared + int((number - first) % STAGES) * piece + row;
            const real* const factors = shared + int((number - first) % STAGES) * piece + int(staged) * rows + column;
#pragma unroll 4
            for (int q = turn; q < here; q += turns) {
                const Four d = *reinterpret_cast<const Four*>(deltas + q * rows);
                const Four v = *reinterpret_cast<const Four*>(factors + q * columns);
#pragma unroll
                for (int i = 0; i < TILE; ++i)
#pragma unroll
                    for (int k = 0; k < TILE; ++k) sums[i][k] += d.values[i] * v.values[k];
            }
        }
        wait_for_groups<0>();
        __syncthreads();
        // (turns, rows, columns), added up in the order of the turns.
        if (own < tiles) {
#pragma unroll
            for (int i = 0; i < TILE; ++i)
#pragma unroll
                for (int k = 0; k < TILE; ++k) shared[(turn * rows + row + i) * columns + column + k] = sums[i][k];
        }
        __syncthreads();
        const int places = rows * columns;
        for (int e = threadIdx.x; e < places; e += blockDim.x) {
            real sum = shared[e];
#pragma unroll 4
            for (int t = 1; t < turns; ++t) sum += shared[t * places + e];
            partial[part * places + e] = sum;
        }
    }
}

// ---- sequence_gradient_sums ----

// Gradients by the weights of one direction of a recurrent layer, from the parts of sequence_gradients. Recurrent gate g
// has the rows from sources[g] * hidden on. A warp takes a few parts of 32 numbers, and the first adds them up.

const int LANES = 32, WARPS = 8;

extern "C" __global__ void __launch_bounds__(LANES * WARPS) sequence_gradient_sums(
    const real* __restrict__ partial,  // (parts, rows, columns): by the states, by the inputs, by the biases, padding
    const int* __restrict__ sources,   // (recurrent)
    real* __restrict__ weight_ih,      // (gates * hidden, inputs) output only
    real* __restrict__ weight_hh,      // (recurrent * hidden, hidden) output only
    real* __restrict__ bias_ih,        // (gates * hidden) if biased else (0) output only
    real* __restrict__ bias_hh,        // (recurrent * hidden) if biased else (0) output only
    size_type parts, size_type rows, size_type columns, size_type gates, size_type recurrent, size_type hidden,
    size_type inputs, int biased)
{
    __shared__ real sums[WARPS][LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const size_type by_input = gates * hidden * (inputs + 1), all = by_input + recurrent * hidden * (hidden + 1);
    for (size_type begin = (size_type)blockIdx.x * LANES; begin < all; begin += (size_type)gridDim.x * LANES) {
        const size_type item = begin + lane;
        real* to = nullptr;
        size_type from = 0;
        if (item < by_input) {
            const size_type row = item / (inputs + 1), column = item % (inputs + 1);
            from = row * columns + hidden + column;
            if (column < inputs) to = weight_ih + row * inputs + column;
            else if (biased) to = bias_ih + row;
        } else if (item < all) {
            const size_type row = (item - by_input) / (hidden + 1), column = (item - by_input) % (hidden + 1);
            from = (sources[row / hidden] * hidden + row % hidden) * columns;
            from += column < hidden ? column : hidden + inputs;
            if (column < hidden) to = weight_hh + row * hidden + column;
            else if (biased) to = bias_hh + row;
        }
        real sum = 0;
#pragma unroll 4
        for (size_type part = warp; part < parts; part += WARPS) sum += partial[part * rows * columns + from];
        __syncthreads();
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp || !to) continue;
        for (int w = 1; w < WARPS; ++w) sum += sums[w][lane];
        *to = sum;
    }
}
