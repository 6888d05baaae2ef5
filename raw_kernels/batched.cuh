// Values of a matrix are batch innermost: entry i of sample s is values[i * batch + s] where the
// matrix is batched, and values[i] where one set of values serves every sample.

__device__ __forceinline__ real value_at(
    const real* values, size_type entry, int batched, size_type batch, size_type sample)
{
    return values[batched ? entry * batch + sample : entry];
}

// item = entry * batch + sample. A 64-bit division costs more than the rest of a small work item.
__device__ __forceinline__ void split(size_type item, size_type batch, size_type* entry, size_type* sample)
{
    if ((item | batch) >> 32) {
        *entry = item / batch;
        *sample = item % batch;
    } else {
        unsigned int quotient = (unsigned int)item / (unsigned int)batch;
        *entry = quotient;
        *sample = (unsigned int)item - quotient * (unsigned int)batch;
    }
}
