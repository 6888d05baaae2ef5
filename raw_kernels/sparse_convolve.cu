// A convolution by the list of the weights that a mask keeps. A warp takes 32 or 128 neighbouring outputs (sample, row,
// column) of a channel: each lane 1 or 4 of them, 32 apart. All lanes read the same tap from shared memory, so a
// multiply-add costs a load, a test of bits and an addition. A warp goes on to other channels with the same outputs.
// The outputs of a channel are split into phases with taps of their own, which the backward pass of a strided
// convolution needs. Wants 8 warps per block; the grid may have any size.

#include "prelude.cuh"
#include "sparse_taps.cuh"

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
