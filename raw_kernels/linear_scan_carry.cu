// The states that come to chunks of a linear scan, from what linear_scan_reduce made of each chunk: of the first one
// `first`, of each later one what the chunk before it makes of its own. Where `descending`, the last chunk is first.

#include "prelude.cuh"
#include "linear_scan.cuh"

template <class Number>
__device__ inline void carry_element(const real* product, const real* end, const real* first, real* start,
                                     size_type element, size_type chunks, size_type plane, bool descending)
{
    Number carried = Number::at(first + element);
#pragma unroll 4
    for (size_type k = 0; k < chunks; ++k) {
        const size_type place = (descending ? chunks - 1 - k : k) * plane + element;
        carried.to(start + place);
        carried = Number::at(product + place) * carried + Number::at(end + place);
    }
}

extern "C" __global__ void linear_scan_carry(
    const real* __restrict__ product,  // (chunks, plane)
    const real* __restrict__ end,      // (chunks, plane)
    const real* __restrict__ first,    // (plane)
    real* __restrict__ start,          // (chunks, plane) output only
    size_type chunks, size_type plane, int paired, int descending)
{
    const int parts = paired ? 2 : 1;
    GRID_STRIDE(item, plane / parts) {
        if (paired)
            carry_element<Pair>(product, end, first, start, 2 * item, chunks, plane, descending);
        else
            carry_element<Real>(product, end, first, start, item, chunks, plane, descending);
    }
}
