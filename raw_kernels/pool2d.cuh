// Windows of two-dimensional pooling.

#include "planes.cuh"

// One axis: `inputs` elements, and `outputs` windows of `kernel` elements, `stride` apart.
struct Axis {
    int inputs, outputs, kernel, padding;
    Divisor<unsigned> stride;

    __device__ __forceinline__ Axis(
        size_type inputs, size_type outputs, size_type kernel, size_type stride, size_type padding)
        : inputs(int(inputs)), outputs(int(outputs)), kernel(int(kernel)), padding(int(padding)),
          stride(unsigned(stride))
    {
    }

    // Where a window begins, which may lie in the padding.
    __device__ __forceinline__ int begin_of(int window) const { return window * int(stride.by) - padding; }

    // The windows from `first` to `end` hold an input.
    __device__ __forceinline__ void find_windows(int input, int& first, int& end) const
    {
        const int last = input + padding;
        first = last < kernel ? 0 : int(stride.quotient(last - kernel)) + 1;
        end = min(int(stride.quotient(last)) + 1, outputs);
    }

    // The elements of a window that the divisor of average pooling counts: those within the padded input, or
    // those within the input.
    __device__ __forceinline__ int count_in(int window, bool with_padding) const
    {
        const int begin = begin_of(window), end = min(begin + kernel, inputs + padding);
        return with_padding ? end - begin : min(end, inputs) - max(begin, 0);
    }
};

// Two neighbours of a row.
struct __align__(2 * sizeof(real)) Pair {
    real left, right;
};

// Whether windows of 2 x 2 without padding tile an input whose rows are pairs.
__device__ __forceinline__ bool are_squares(const Axis& down, const Axis& across, const real* input)
{
    const auto halves = [](const Axis& axis) {
        return axis.kernel == 2 && axis.stride.by == 2 && axis.padding == 0 && axis.inputs == 2 * axis.outputs;
    };
    return halves(down) && halves(across) && size_type(input) % sizeof(Pair) == 0;
}
