// What the frames of recurrent cells share.

#include "packs.cuh"

// The cell's gates, states, saved rows, unit parameters, separate gates, and rows of its delta; extents of
// arrays of as many, which C++ does not let be 0.
const int G = Cell::gates, P = Cell::states, K = Cell::saved, Q = Cell::parameters, U = Cell::separate;
const int D = G + U + Q, K_EXTENT = K ? K : 1, Q_EXTENT = Q ? Q : 1, U_EXTENT = U ? U : 1;
// Gates with rows in W_hh: how many, and the gate of each. Coefficients of a step's Jacobian.
const int R = RECURRENT, R_EXTENT = R ? R : 1, A_EXTENT = Cell::coefficients ? Cell::coefficients : 1;

__device__ constexpr bool is_recurrent(int gate) { return RECURRENT_BITS >> gate & 1; }

__device__ constexpr int gate_of(int sum)
{
    if (R == G) return sum;
    int gate = 0;
    while (!is_recurrent(gate) || sum--) ++gate;
    return gate;
}

// Blocks of a cluster, which a launch is then made of.
#ifndef CLUSTER
#define CLUSTER 1
#endif
#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

// The unit parameters of one unit, `hidden` apart.
__device__ __forceinline__ void load_unit(const real* __restrict__ unit, int hidden, real* values)
{
#pragma unroll
    for (int q = 0; q < Q; ++q) values[q] = unit[q * hidden];
}

// Row d of a step's delta: the gradients by x, by u where they differ from x's, and by the unit parameters.
__device__ __forceinline__ real delta_row(const real* by_x, const real* by_u, const real* by_p, int d)
{
    if (d < G) return by_x[d < G ? d : 0];
    return d < G + U ? by_u[d < G + U ? d - G : 0] : by_p[d - G - U];
}

// Calls put(sum, gradient) for the sum of each recurrent gate.
template <class Put>
__device__ __forceinline__ void for_each_sum(const real* by_x, const real* by_u, Put put)
{
    int separate = 0, sum = 0;
#pragma unroll
    for (int gate = 0; gate < G; ++gate) {
        const real by_sum = Cell::separate_gates >> gate & 1 ? by_u[separate++] : by_x[gate];
        if (is_recurrent(gate)) put(sum++, by_sum);
    }
}

// The row of a step's delta that is the gradient by a recurrent sum.
__device__ __forceinline__ int recurrent_row(int sum)
{
    const unsigned separate = Cell::separate_gates;
    const int gate = gate_of(sum);
    return separate >> gate & 1 ? G + __popc(separate & ((1u << gate) - 1)) : gate;
}

// A sample's rows: in an array (batch, rows, hidden) they begin at start(rows), `hidden` apart.
struct Walk {
    size_type sample;
    int hidden;

    __device__ __forceinline__ size_type start(int rows) const { return sample * rows * hidden; }
};

// `value`, without the compiler knowing it: what is read from an address made of it is read there and not
// ahead of a loop, where all of W_hh, or of the unit parameters, would be kept in registers and spilled.
__device__ __forceinline__ int opaque(int value)
{
    asm volatile("" : "+r"(value));
    return value;
}
