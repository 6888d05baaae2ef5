// A unit's numbers of a row, `hidden` apart.

const int G = Cell::gates, Q = Cell::parameters, Q_EXTENT = Q ? Q : 1;

template <int COUNT>
__device__ __forceinline__ void load_unit_of(const real* row, size_type hidden, real* numbers)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) numbers[i] = row[i * hidden];
}

// Its gates: the projected input, and their biases.
__device__ __forceinline__ void load_gates(const real* row, const real* bias, size_type hidden, real* gates)
{
#pragma unroll
    for (int g = 0; g < G; ++g) gates[g] = row[g * hidden] + bias[g * hidden];
}

template <int COUNT>
__device__ __forceinline__ void store_unit_of(const real* numbers, size_type hidden, real* row)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) row[i * hidden] = numbers[i];
}
