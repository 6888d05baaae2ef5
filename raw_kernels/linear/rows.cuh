// A unit's numbers of a row, `hidden` apart.

const int G = Cell::gates, Q = Cell::parameters, Q_EXTENT = Q ? Q : 1;

template <int COUNT>
__device__ __forceinline__ void load_unit_of(const real* row, size_type hidden, real* numbers)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) numbers[i] = row[i * hidden];
}

template <int COUNT>
__device__ __forceinline__ void store_unit_of(const real* numbers, size_type hidden, real* row)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) row[i * hidden] = numbers[i];
}
