// What the frames of recurrent cells share.

// The cell's gates, states, kept rows, unit parameters, separate gates, and rows of its delta; extents of
// arrays of as many, which C++ does not let be 0.
const int G = Cell::gates, P = Cell::states, K = Cell::kept, Q = Cell::parameters, U = Cell::separate;
const int D = G + U + Q, K_EXTENT = K ? K : 1, Q_EXTENT = Q ? Q : 1, U_EXTENT = U ? U : 1;

// 16 bytes of shared memory, one load.
const int PACK = 16 / int(sizeof(real));

struct __align__(16) Pack {
    real values[PACK];
};

// The unit parameters of one unit, `hidden` apart.
__device__ __forceinline__ void load_unit(const real* __restrict__ unit, int hidden, real* values)
{
#pragma unroll
    for (int q = 0; q < Q; ++q) values[q] = unit[q * hidden];
}

// The set of weights of walk b.
__device__ __forceinline__ size_type set_of(size_type b, size_type group)
{
    return group == 1 ? b : b / group;
}
