// Two-dimensional convolution by a list of kept weights.

#include "prelude.cuh"
#include "sparse_taps.cuh"

// ---- sparse_convolve ----

// A convolution by the list of the weights that a mask keeps. A lane takes an output position of a channel in 1 or 4
// samples; a warp takes 32 such positions and goes on to other channels with the same ones. All lanes read the same tap
// from shared memory, test it once, and read the input of their samples. The outputs of a channel are split into phases
// with taps of their own, which the backward pass of a strided convolution needs. Wants 8 warps per block; the grid may
// have any size.

// Taps of a table; those that a lane fetches at once; warps and blocks.
const int ROOM = 192, FETCHED = 3, WARPS = 8, BLOCKS = sizeof(real) == 4 ? 3 : 2;

struct Table {
    Taps taps[ROOM / 2];
    Pack weights[ROOM / PACK];
};

// The lists of all taps: as the kernel's parameters.
struct Lists {
    const int *channels, *downs, *rights, *which;
    const real* values;
    int in_plane, in_width;

    // Fills a table with `count` taps from `begin` on, and with ones that read 0 up to a multiple of TOGETHER. Returns
    // whether some tap is far.
    __device__ __forceinline__ bool fill(Table& table, int begin, int count, int lane) const
    {
        Tap* const taps = table.taps[0].taps;
        real* const weights = table.weights[0].values;
        const int padded = (count + TOGETHER - 1) / TOGETHER * TOGETHER;
        bool far = false;
#pragma unroll 1
        for (int first = lane; first < padded; first += FETCHED * LANES) {
            int channel[FETCHED], down[FETCHED], right[FETCHED], place[FETCHED];
            real weight[FETCHED];
#pragma unroll
            for (int i = 0; i < FETCHED; ++i) {
                const int k = first + i * LANES;
                place[i] = -1;
                if (k < count) {
                    channel[i] = channels[begin + k], down[i] = downs[begin + k], right[i] = rights[begin + k];
                    place[i] = which[begin + k];
                }
            }
#pragma unroll
            for (int i = 0; i < FETCHED; ++i) weight[i] = place[i] < 0 ? real(0) : values[place[i]];
#pragma unroll
            for (int i = 0; i < FETCHED; ++i) {
                const int k = first + i * LANES;
                if (k >= padded) break;
                const bool present = place[i] >= 0;
                far |= present && is_far(down[i], right[i]);
                taps[k] = present ? tap_to(channel[i], down[i], right[i], in_plane, in_width) : Tap{0, NOWHERE_BITS};
                weights[k] = weight[i];
            }
        }
        far = __any_sync(0xffffffffu, far);
        if (far)
            for (int k = lane; k < padded; k += LANES) taps[k].seen = k < count ? downs[begin + k] : NOWHERE;
        __syncwarp();
        return far;
    }
};

// `rights` are read where a tap is far.
template <bool FAR, int EACH>
__device__ __forceinline__ void add_taps(
    const Table& table, const int* __restrict__ rights, int count, const Position<EACH>& position, Extent input,
    real (&sum)[EACH])
{
    const int STEP = EACH == 1 ? TOGETHER : TOGETHER / 2;
#pragma unroll 1
    for (int k = 0; k < count; k += STEP) {
        real values[STEP][EACH];
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            const Taps two = table.taps[k / 2 + i / 2];
            const int right = FAR ? rights[min(k + i, count - 1)] : 0;
            position.template read<FAR>(two.taps[i % 2], right, input, values[i]);
        }
#pragma unroll
        for (int i = 0; i < STEP; i += PACK) {
            const Pack weights = table.weights[k / PACK + i / PACK];
#pragma unroll
            for (int j = 0; j < PACK; ++j)
#pragma unroll
                for (int e = 0; e < EACH; ++e) sum[e] += weights.values[j] * values[i + j][e];
        }
    }
}

template <int EACH>
__device__ __forceinline__ void convolve(
    const real* __restrict__ input, const Lists& lists, const real* __restrict__ bias, const int* __restrict__ indptr,
    real* __restrict__ output, Table& table, int batch, size_type in_size, Extent in, int stride_y, int stride_x,
    int out_channels, Extent out, int phases_y, int phases_x, bool biased)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const size_type out_plane = size_type(out.height) * out.width, out_size = out_channels * out_plane;
    const int height = (out.height + phases_y - 1) / phases_y, width = (out.width + phases_x - 1) / phases_x;
    const Divisor<unsigned> by_width(width), by_height(height);
    const unsigned count = (batch + EACH - 1) / EACH * height * width;
    for (int phase = blockIdx.z; phase < phases_y * phases_x; phase += gridDim.z)
        for (unsigned first = blockIdx.x * LANES; first < count; first += gridDim.x * LANES) {
            const unsigned number = first + lane, line = by_width.quotient(number), group = by_height.quotient(line);
            const int y = line - group * height, x = number - line * width, sample = group * EACH;
            const int row = y * phases_y + phase / phases_x, column = x * phases_x + phase % phases_x;
            const bool present = number < count && row < out.height && column < out.width;
            const int samples = present ? min(EACH, batch - sample) : 0;
            Position<EACH> position;
            if (present)
                position.place(input + sample * in_size, in_size, samples, y * stride_y, x * stride_x, in);
            else
                position.leave_out(input);
            real* const to = output + (sample * out_size + row * out.width + column);
            for (int channel = blockIdx.y * WARPS + warp; channel < out_channels; channel += gridDim.y * WARPS) {
                const int taps = channel * phases_y * phases_x + phase, end = indptr[taps + 1];
                real sum[EACH];
#pragma unroll
                for (int e = 0; e < EACH; ++e) sum[e] = biased ? bias[channel] : real(0);
                for (int begin = indptr[taps]; begin < end; begin += ROOM) {
                    const int those = min(ROOM, end - begin);
                    if (lists.fill(table, begin, those, lane))
                        add_taps<true>(table, lists.rights + begin, those, position, in, sum);
                    else
                        add_taps<false>(table, lists.rights + begin, those, position, in, sum);
                    __syncwarp();
                }
#pragma unroll
                for (int e = 0; e < EACH; ++e)
                    if (e < samples) to[e * out_size + channel * out_plane] = sum[e];
            }
        }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) sparse_convolve(
    const real* __restrict__ input,    // (batch, in_channels, in_height, in_width)
    const real* __restrict__ values,   // (nnz): the weights that the mask keeps
    const real* __restrict__ bias,     // (out_channels) if biased else (0)
    const int* __restrict__ indptr,    // (out_channels * phases_y * phases_x + 1): where the taps of each row begin
    const int* __restrict__ channels,  // (nnz): of the input, by tap
    const int* __restrict__ downs,     // (nnz): the tap sees row y * stride_y + down for the y-th row of its phase
    const int* __restrict__ rights,    // (nnz): likewise its column
    const int* __restrict__ which,     // (nnz): its weight's place in `values`
    real* __restrict__ output,         // (batch, out_channels, out_height, out_width) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type stride_y,
    size_type stride_x, size_type out_channels, size_type out_height, size_type out_width, size_type phases_y,
    size_type phases_x, size_type nnz, size_type biased)
{
    __shared__ Table tables[WARPS];
    const Extent in = {int(in_height), int(in_width)}, out = {int(out_height), int(out_width)};
    const Lists lists = {channels, downs, rights, which, values, int(in_height * in_width), int(in_width)};
    const size_type in_size = in_channels * in_height * in_width;
    const size_type outputs =
        batch * ((out_height + phases_y - 1) / phases_y) * ((out_width + phases_x - 1) / phases_x);
    Table& own = tables[threadIdx.x / LANES];
    // One sample per lane where the grid has warps for all of them, else four.
    if (size_type(gridDim.x) * LANES >= outputs)
        convolve<1>(input, lists, bias, indptr, output, own, batch, in_size, in, stride_y, stride_x, out_channels, out,
                    phases_y, phases_x, biased);
    else
        convolve<4>(input, lists, bias, indptr, output, own, batch, in_size, in, stride_y, stride_x, out_channels, out,
                    phases_y, phases_x, biased);
}

// ---- sparse_weight_gradient ----

// The gradients of a convolution by the weights that a mask keeps, and by the bias. A block takes 96 weights of an
// output channel. A lane holds the gradients of an output position in 1 or 4 samples in registers while all those taps
// pass; the lanes of a warp then add 8 sums at a time. Warps share out the positions, and the taps where positions are
// few. Wants a power of two of warps, at most THREADS / 32; the grid may have any size.

const int CHUNK = 96, THREADS = sizeof(real) == 4 ? 1024 : 512;

struct Sums {
    Taps taps[CHUNK / 2];
    int rights[CHUNK];  // where a tap is far
    real by_weight[THREADS / LANES][CHUNK], by_bias[THREADS / LANES];
};

// Lane l gets the sum over the warp of value l / 4.
__device__ __forceinline__ real warp_sums(real (&values)[TOGETHER], int lane)
{
#pragma unroll
    for (int half = TOGETHER / 2; half > 0; half /= 2) {
        const bool upper = lane & (4 * half);
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const real mine = upper ? values[i + half] : values[i], other = upper ? values[i] : values[i + half];
            values[i] = mine + __shfl_xor_sync(0xffffffffu, other, 4 * half);
        }
    }
    values[0] += __shfl_xor_sync(0xffffffffu, values[0], 2);
    return values[0] + __shfl_xor_sync(0xffffffffu, values[0], 1);
}

// Adds the products of a position's gradients and what taps `from`, `from` + `step`, ... read.
template <bool FAR, int EACH>
__device__ __forceinline__ void add_products(
    const Sums& sums, int from, int step, int count, const Position<EACH>& position, Extent input,
    const real (&gradients)[EACH], int lane, real* by_weight)
{
#pragma unroll 1
    for (int k = from; k < count; k += step) {
        real products[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Taps two = sums.taps[k / 2 + i / 2];
            real values[EACH];
            position.template read<FAR>(two.taps[i % 2], FAR ? sums.rights[k + i] : 0, input, values);
            products[i] = gradients[0] * values[0];
#pragma unroll
            for (int e = 1; e < EACH; ++e) products[i] += gradients[e] * values[e];
        }
        const real sum = warp_sums(products, lane);
        if (lane % 4 == 0) by_weight[k + lane / 4] += sum;
    }
}

// Adds the sums of one warp over its positions, every `slices`-th group of them, in EACH times `groups` samples.
template <bool FAR, int EACH>
__device__ __forceinline__ void sum_outputs(
    const real* __restrict__ input, const real* __restrict__ gradient, Sums& sums, int count, int slices, int groups,
    size_type in_size, Extent in, int stride_y, int stride_x, size_type out_size, Extent out)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const int from = warp / slices * TOGETHER, step = warps / slices * TOGETHER;
    const Divisor<unsigned> by_width(out.width), by_height(out.height);
    const unsigned positions = groups * out.height * out.width;
    real bias = 0;
    for (unsigned first = warp % slices * LANES; first < positions; first += slices * LANES) {
        const unsigned number = first + lane, line = by_width.quotient(number), group = by_height.quotient(line);
        const int y = line - group * out.height, x = number - line * out.width;
        const size_type sample = size_type(group) * EACH;
        const bool present = number < positions;
        Position<EACH> position;
        real gradients[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            gradients[e] = present ? gradient[(sample + e) * out_size + (y * out.width + x)] : real(0);
            bias += gradients[e];
        }
        if (present)
            position.place(input + sample * in_size, in_size, EACH, y * stride_y, x * stride_x, in);
        else
            position.leave_out(input);
        add_products<FAR>(sums, from, step, count, position, in, gradients, lane, sums.by_weight[warp]);
    }
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) bias += __shfl_xor_sync(0xffffffffu, bias, apart);
    if (lane == 0) sums.by_bias[warp] += bias;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_weight_gradient(
    const real* __restrict__ input,      // (batch, in_channels, in_height, in_width)
    const real* __restrict__ gradient,   // (batch, out_channels, out_height, out_width)
    const int* __restrict__ indptr,      // (out_channels + 1): where the taps of each output channel begin
    const int* __restrict__ channels,    // (nnz): of the input, by tap
    const int* __restrict__ downs,       // (nnz): output row y sees row y * stride_y + down
    const int* __restrict__ rights,      // (nnz): likewise its column
    real* __restrict__ weight_gradient,  // (nnz) output only
    real* __restrict__ bias_gradient,    // (out_channels) if biased else (0) output only
    size_type batch, size_type in_channels, size_type in_height, size_type in_width, size_type stride_y,
    size_type stride_x, size_type out_channels, size_type out_height, size_type out_width, size_type nnz,
    size_type biased)
{
    __shared__ Sums sums;
    const Extent in = {int(in_height), int(in_width)}, out = {int(out_height), int(out_width)};
    const size_type in_plane = in_height * in_width, out_plane = out_height * out_width;
    const size_type in_size = in_channels * in_plane, out_size = out_channels * out_plane;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    // Groups of four samples where they fill a warp, then the other samples.
    const int fours = batch / 4 * out_plane >= LANES ? batch / 4 : 0;
    const unsigned positions = (fours ? fours : batch) * out_plane;
    int slices = warps;
    while (slices > 1 && positions <= slices / 2 * LANES) slices /= 2;
    for (int channel = blockIdx.x; channel < out_channels; channel += gridDim.x) {
        const int first = indptr[channel], end = indptr[channel + 1];
        // A channel without taps has a bias.
        for (int begin = first + blockIdx.y * CHUNK; begin < end || begin == first; begin += gridDim.y * CHUNK) {
            const int count = min(CHUNK, end - begin), padded = (count + TOGETHER - 1) / TOGETHER * TOGETHER;
            const int k = threadIdx.x;
            int down = 0, right = 0;
            Tap tap = {0, NOWHERE_BITS};
            if (k < count) {
                down = downs[begin + k], right = rights[begin + k];
                tap = tap_to(channels[begin + k], down, right, in_plane, in_width);
            }
            const bool far = __syncthreads_or(is_far(down, right));
            if (far) tap.seen = k < count ? down : NOWHERE;
            if (k < padded) sums.taps[k / 2].taps[k % 2] = tap, sums.rights[k] = right;
            for (int i = lane; i < CHUNK; i += LANES) sums.by_weight[warp][i] = 0;
            if (lane == 0) sums.by_bias[warp] = 0;
            __syncthreads();
            const real* const of_channel = gradient + channel * out_plane;
            // Sums by far taps take the samples one by one.
            const int ahead = far ? 0 : 4 * fours, left = batch - ahead;
            const real *const rest = input + ahead * in_size, *const of_rest = of_channel + ahead * out_size;
            if (ahead)
                sum_outputs<false, 4>(input, of_channel, sums, padded, slices, fours, in_size, in, stride_y, stride_x,
                                      out_size, out);
            if (far)
                sum_outputs<true, 1>(rest, of_rest, sums, padded, slices, left, in_size, in, stride_y, stride_x,
                                     out_size, out);
            else if (left)
                sum_outputs<false, 1>(rest, of_rest, sums, padded, slices, left, in_size, in, stride_y, stride_x,
                                      out_size, out);
            __syncthreads();
            if (k < count) {
                const int of_weight = k / TOGETHER % (warps / slices) * slices;
                real total = 0;
                for (int slice = 0; slice < slices; ++slice) total += sums.by_weight[of_weight + slice][k];
                weight_gradient[begin + k] = total;
            }
            if (biased && begin == first && k == CHUNK) {
                real total = 0;
                for (int slice = 0; slice < slices; ++slice) total += sums.by_bias[slice];
                bias_gradient[channel] = total;
            }
            __syncthreads();
        }
    }
}
