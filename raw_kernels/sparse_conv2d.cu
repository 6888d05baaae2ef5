// Two-dimensional convolution by a list of kept weights.

#include "prelude.cuh"
#include "sparse_taps.cuh"

// ---- sparse_convolve ----

// A convolution by the list of the weights that a mask keeps. A warp takes 32 or 128 neighbouring outputs (sample, row,
// column) of a channel: each lane 1 or 4 of them, 32 apart. All lanes read the same tap from shared memory, so a
// multiply-add costs a load, a test of bits and an addition. A warp goes on to other channels with the same outputs.
// The outputs of a channel are split into phases with taps of their own, which the backward pass of a strided
// convolution needs. Wants 8 warps per block; the grid may have any size.

template <bool FAR, int EACH>
__device__ __forceinline__ void add_taps(
    const Tap* held, int count, const Position (&positions)[EACH], Extent input, real (&sum)[EACH])
{
    const int TOGETHER = EACH == 1 ? 8 : 4;
#pragma unroll 1
    for (int k = 0; k < count; k += TOGETHER) {
        real values[TOGETHER][EACH], weights[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Tap tap = held[k + i];
            weights[i] = tap.weight;
#pragma unroll
            for (int e = 0; e < EACH; ++e) values[i][e] = positions[e].template read<FAR>(tap, input);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
            for (int e = 0; e < EACH; ++e) sum[e] += weights[i] * values[i][e];
    }
}

template <int EACH>
__device__ __forceinline__ void convolve(
    const real* __restrict__ input, const real* __restrict__ values, const real* __restrict__ bias,
    const int* __restrict__ indptr, const int* __restrict__ channels, const int* __restrict__ downs,
    const int* __restrict__ rights, const int* __restrict__ which, real* __restrict__ output, Tap* held,
    size_type batch, size_type in_channels, Extent in, int stride_y, int stride_x, int out_channels, Extent out,
    int phases_y, int phases_x, bool biased)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const size_type in_plane = size_type(in.height) * in.width, out_plane = size_type(out.height) * out.width;
    const int height = (out.height + phases_y - 1) / phases_y, width = (out.width + phases_x - 1) / phases_x;
    const unsigned count = batch * height * width;
    for (int phase = blockIdx.z; phase < phases_y * phases_x; phase += gridDim.z)
        for (unsigned first = blockIdx.x * (LANES * EACH); first < count; first += gridDim.x * (LANES * EACH)) {
            Position positions[EACH];
            size_type to[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const unsigned number = first + lane + LANES * e;
                const unsigned line = number / width, sample = line / height;
                const int y = line % height, x = number % width;
                const int row = y * phases_y + phase / phases_x, column = x * phases_x + phase % phases_x;
                to[e] = -1;
                positions[e].leave_out(input);
                if (number < count && row < out.height && column < out.width) {
                    to[e] = size_type(sample) * out_channels * out_plane + row * out.width + column;
                    positions[e].place(input + sample * in_channels * in_plane, y * stride_y, x * stride_x, in);
                }
            }
            for (int channel = blockIdx.y * WARPS + warp; channel < out_channels; channel += gridDim.y * WARPS) {
                const int taps = channel * phases_y * phases_x + phase, end = indptr[taps + 1];
                real sum[EACH];
#pragma unroll
                for (int e = 0; e < EACH; ++e) sum[e] = biased ? bias[channel] : real(0);
                for (int begin = indptr[taps]; begin < end; begin += CHUNK) {
                    const int those = min(CHUNK, end - begin), padded = (those + 7) / 8 * 8;
                    bool far = false;
                    for (int k = lane; k < padded; k += LANES) {
                        Tap tap = no_tap();
                        if (k < those)
                            tap = tap_to(channels[begin + k], downs[begin + k], rights[begin + k], in_plane, in.width,
                                         values[which[begin + k]]);
                        far |= is_far(tap);
                        held[k] = tap;
                    }
                    far = __any_sync(0xffffffffu, far);
                    if (!far)
                        for (int k = lane; k < padded; k += LANES) encode_bits(held[k]);
                    __syncwarp();
                    if (far)
                        add_taps<true>(held, padded, positions, in, sum);
                    else
                        add_taps<false>(held, padded, positions, in, sum);
                    __syncwarp();
                }
#pragma unroll
                for (int e = 0; e < EACH; ++e)
                    if (to[e] >= 0) output[to[e] + channel * out_plane] = sum[e];
            }
        }
}

extern "C" __global__ void __launch_bounds__(256, 2) sparse_convolve(
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
    __shared__ Tap held[WARPS][CHUNK];
    const Extent in = {int(in_height), int(in_width)}, out = {int(out_height), int(out_width)};
    const size_type outputs =
        batch * ((out_height + phases_y - 1) / phases_y) * ((out_width + phases_x - 1) / phases_x);
    // One output per lane where the grid has warps for all of them, else four.
    const bool few = size_type(gridDim.x) * LANES >= outputs;
    Tap* const own = held[threadIdx.x / LANES];
    if (few)
        convolve<1>(input, values, bias, indptr, channels, downs, rights, which, output, own, batch, in_channels, in,
                    stride_y, stride_x, out_channels, out, phases_y, phases_x, biased);
    else
        convolve<4>(input, values, bias, indptr, channels, downs, rights, which, output, own, batch, in_channels, in,
                    stride_y, stride_x, out_channels, out, phases_y, phases_x, biased);
}

// ---- sparse_weight_gradient ----

// The gradients of a convolution by the weights that a mask keeps, and by the bias. A block takes 64 weights of an
// output channel. A lane holds the gradients of 1 or 4 outputs in registers while all those taps pass; the lanes of a
// warp then add 8 sums at a time. Warps share out the outputs, and the taps where outputs are few. Wants 8 warps per
// block; the grid may have any size.

const int TOGETHER = 8;

struct Sums {
    Tap taps[CHUNK];
    real by_weight[WARPS][CHUNK], by_bias[WARPS];
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

// Adds the products of some outputs' gradients and what taps `from`, `from` + `step`, ... of a chunk read.
template <bool FAR, int EACH>
__device__ __forceinline__ void add_products(
    const Tap* taps, int from, int step, int count, const Position (&positions)[EACH], Extent input,
    const real (&gradients)[EACH], int lane, real* sums)
{
#pragma unroll 1
    for (int k = from; k < count; k += step) {
        real products[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Tap tap = taps[k + i];
            real values[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) values[e] = positions[e].template read<FAR>(tap, input);
            products[i] = gradients[0] * values[0];
#pragma unroll
            for (int e = 1; e < EACH; ++e) products[i] += gradients[e] * values[e];
        }
        const real sum = warp_sums(products, lane);
        if (lane % 4 == 0) sums[k + lane / 4] += sum;
    }
}

// The sums of one warp over its outputs: every `slices`-th group of them.
template <int EACH>
__device__ __forceinline__ void sum_outputs(
    const real* __restrict__ input, const real* __restrict__ gradient, Sums& sums, int count, bool far, int slices,
    unsigned outputs, size_type in_size, Extent in, int stride_y, int stride_x, size_type out_size, Extent out)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int from = warp / slices * TOGETHER, step = WARPS / slices * TOGETHER;
    for (int k = lane; k < CHUNK; k += LANES) sums.by_weight[warp][k] = 0;
    __syncwarp();
    real bias = 0;
    for (unsigned first = warp % slices * (LANES * EACH); first < outputs; first += slices * (LANES * EACH)) {
        Position positions[EACH];
        real gradients[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const unsigned number = first + lane + LANES * e;
            const unsigned line = number / out.width, sample = line / out.height;
            const int y = line % out.height, x = number % out.width;
            gradients[e] = 0;
            positions[e].leave_out(input);
            if (number < outputs) {
                gradients[e] = gradient[sample * out_size + y * out.width + x];
                positions[e].place(input + sample * in_size, y * stride_y, x * stride_x, in);
            }
            bias += gradients[e];
        }
        if (far)
            add_products<true>(sums.taps, from, step, count, positions, in, gradients, lane, sums.by_weight[warp]);
        else
            add_products<false>(sums.taps, from, step, count, positions, in, gradients, lane, sums.by_weight[warp]);
    }
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) bias += __shfl_xor_sync(0xffffffffu, bias, apart);
    if (lane == 0) sums.by_bias[warp] = bias;
}

extern "C" __global__ void __launch_bounds__(256, 2) sparse_weight_gradient(
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
    const unsigned outputs = batch * out_plane;
    const bool many = outputs >= 4 * LANES * WARPS;
    int slices = WARPS;
    while (slices > 1 && outputs <= slices / 2 * LANES) slices /= 2;
    for (int channel = blockIdx.x; channel < out_channels; channel += gridDim.x) {
        const int first = indptr[channel], end = indptr[channel + 1];
        // A channel without taps has a bias.
        for (int begin = first + blockIdx.y * CHUNK; begin < end || begin == first; begin += gridDim.y * CHUNK) {
            const int count = min(CHUNK, end - begin), padded = (count + TOGETHER - 1) / TOGETHER * TOGETHER;
            const int k = threadIdx.x;
            Tap tap = no_tap();
            if (k < count)
                tap = tap_to(channels[begin + k], downs[begin + k], rights[begin + k], in_plane, in_width, real(0));
            const bool far = __syncthreads_or(is_far(tap));
            if (!far) encode_bits(tap);
            if (k < padded) sums.taps[k] = tap;
            __syncthreads();
            const real* const of_channel = gradient + channel * out_plane;
            if (many)
                sum_outputs<4>(input, of_channel, sums, padded, far, slices, outputs, in_channels * in_plane, in,
                               stride_y, stride_x, out_channels * out_plane, out);
            else
                sum_outputs<1>(input, of_channel, sums, padded, far, slices, outputs, in_channels * in_plane, in,
                               stride_y, stride_x, out_channels * out_plane, out);
            __syncthreads();
            if (k < count) {
                const int warp = k / TOGETHER % (WARPS / slices) * slices;
                real total = 0;
                for (int slice = 0; slice < slices; ++slice) total += sums.by_weight[warp + slice][k];
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
