// Elements of an array (planes, height, width).

#include "division.cuh"

template <class Index, class Body>
__device__ __forceinline__ void walk_elements(Index count, Index height, Index width, Body body)
{
    const Divisor<Index> by_height(height), by_width(width);
    const Index step = Index(gridDim.x) * blockDim.x;
    for (Index item = Index(blockIdx.x) * blockDim.x + threadIdx.x; item < count; item += step) {
        const Index line = by_width.quotient(item), plane = by_height.quotient(line);
        body(size_type(plane), int(line - plane * height), int(item - line * width), size_type(item));
    }
}

// Calls body(plane, row, column, item) for the elements of all planes, which a one-dimensional launch of any shape
// shares out. 32-bit numbers count them where those suffice.
template <class Body>
__device__ __forceinline__ void for_each_element(size_type planes, size_type height, size_type width, Body body)
{
    const size_type count = planes * height * width;
    if (count < 1ll << 31)
        walk_elements<unsigned>(count, height, width, body);
    else
        walk_elements<unsigned long long>(count, height, width, body);
}
