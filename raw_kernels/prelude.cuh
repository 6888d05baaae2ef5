// Common to every kernel. `real` and `index_t` are set by the variant that is compiled:
// float or double, and a 32- or 64-bit unsigned integer.

typedef long long size_type;

// NVRTC has no <math.h>.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

// The loop over `count` work items that a one-dimensional launch of any shape covers.
#define GRID_STRIDE(item, count)                                                              \
    for (size_type item = (size_type)blockIdx.x * blockDim.x + threadIdx.x; item < (count);  \
         item += (size_type)gridDim.x * blockDim.x)
