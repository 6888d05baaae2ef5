// Values of a matrix are batch innermost: entry i of sample s is values[i * batch + s] where the
// matrix is batched, and values[i] where one set of values serves every sample.

__device__ __forceinline__ real value_at(
    const real* values, size_type entry, int batched, size_type batch, size_type sample)
{
    return values[batched ? entry * batch + sample : entry];
}
