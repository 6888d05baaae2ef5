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

// A walk: a sample's with one of the sets of weights, which are heads of a layer. Its elements begin at `start` in
// (sets, hidden, batch), `batch` apart. Kernels take `walks`, which is sets * batch: worked out there it takes a
// register.
__device__ __forceinline__ size_type start_of(size_type set, size_type sample, int hidden, size_type batch)
{
    return set * hidden * batch + sample;
}

struct Walk {
    size_type set, sample, start;

    __device__ __forceinline__ Walk(size_type number, int hidden, size_type sets, size_type batch)
        : set(sets == 1 ? 0 : number / batch), sample(number - set * batch),
          start(start_of(set, sample, hidden, batch))
    {
    }
};
